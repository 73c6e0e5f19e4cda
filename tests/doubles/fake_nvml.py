"""A driver that answers from tables, in place of pynvml."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


@dataclass(frozen=True)
class FakeSlice:
    """One MIG slice."""

    uuid: str
    memory: int
    used: int = 0
    processes: tuple[tuple[int, int | None], ...] = ()
    slices: None = None
    name: str = "NVIDIA A100-SXM4-80GB MIG 1g.10gb"


@dataclass(frozen=True)
class FakeGpu:
    """One GPU; ``slices`` None: MIG is off; ``processes`` are (pid, bytes), None: asking for them is an error."""

    uuid: str
    name: str = "Fake"
    memory: int = 16 << 30
    capability: tuple[int, int] = (9, 0)
    bus: str = "00000000:3B:00.0"
    used: int = 0
    processes: tuple[tuple[int, int | None], ...] | None = ()
    slices: Sequence[FakeSlice] | None = None
    reasons: int = 0x1


@dataclass
class FakeNvml:
    """The functions the probe calls, by their real names. ``missing`` ones do not exist; ``failure`` ends the start."""

    gpus: Sequence[FakeGpu] = ()
    nvlink: bool = False
    level: int = 30
    missing: frozenset[str] = frozenset()
    failure: str | None = None
    calls: list[str] = field(default_factory=list)

    NVML_P2P_CAPS_INDEX_NVLINK = 2
    nvmlMemory_v2 = 0x02000028  # noqa: N815

    class NVMLError(Exception):
        """As in pynvml, the base of all."""

    class NVMLError_LibraryNotFound(NVMLError):  # noqa: N801
        """No driver library."""

    class NVMLError_DriverNotLoaded(NVMLError):  # noqa: N801
        """No kernel module."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name != "nvmlMemory_v2":
            object.__getattribute__(self, "calls").append(name)
            if name in object.__getattribute__(self, "missing"):
                raise AttributeError(name)
        return object.__getattribute__(self, name)

    def nvmlInit(self) -> None:  # noqa: N802
        if self.failure:
            raise getattr(FakeNvml, self.failure)

    def nvmlShutdown(self) -> None:  # noqa: N802
        pass

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:  # noqa: N802
        return self.gpus[index]

    def nvmlDeviceGetUUID(self, handle: Any) -> str:  # noqa: N802
        return handle.uuid

    def nvmlDeviceGetName(self, handle: Any) -> bytes:  # noqa: N802
        return handle.name.encode()

    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> Any:  # noqa: N802
        return SimpleNamespace(total=handle.memory, free=handle.memory - handle.used, used=handle.used)

    def nvmlDeviceGetCudaComputeCapability(self, handle: FakeGpu) -> tuple[int, int]:  # noqa: N802
        return handle.capability

    def nvmlDeviceGetMigMode(self, handle: Any) -> list[int]:  # noqa: N802
        return [0, 0] if handle.slices is None else [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> int:  # noqa: N802
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: FakeGpu, place: int) -> FakeSlice:  # noqa: N802
        present = {2 * position: found for position, found in enumerate(handle.slices or ())}
        if place not in present:
            raise self.NVMLError
        return present[place]

    def nvmlDeviceGetPciInfo(self, handle: FakeGpu) -> Any:  # noqa: N802
        return SimpleNamespace(busId=handle.bus.encode())

    def nvmlDeviceGetP2PStatus(self, one: Any, other: Any, index: int) -> int:  # noqa: N802
        return 0 if self.nvlink else 3

    def nvmlDeviceGetTopologyCommonAncestor(self, one: Any, other: Any) -> int:  # noqa: N802
        return self.level

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> list[Any]:  # noqa: N802
        if handle.processes is None:
            raise self.NVMLError
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in handle.processes]

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: FakeGpu) -> int:  # noqa: N802
        return handle.reasons

    nvmlDeviceGetCurrentClocksThrottleReasons = nvmlDeviceGetCurrentClocksEventReasons  # noqa: N815
