"""A driver that answers from tables, in place of pynvml."""

import functools
from collections.abc import Callable, Sequence
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
    """One GPU; ``slices`` None: MIG is off; ``processes`` are (pid, bytes). Asking for what is None is an error."""

    uuid: str
    name: str = "Fake"
    memory: int | None = 16 << 30
    capability: tuple[int, int] = (9, 0)
    bus: str = "00000000:3B:00.0"
    used: int = 0
    processes: tuple[tuple[int, int | None], ...] | None = ()
    slices: Sequence[FakeSlice] | None = None
    reasons: int = 0x1


@dataclass
class FakeNvml:
    """The functions of `ANSWERS`, by their real names. ``missing`` ones do not exist; ``failure`` ends the start."""

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

    def __getattr__(self, name: str) -> Any:
        if name not in ANSWERS or name in self.missing:
            raise AttributeError(name)
        self.calls.append(name)
        return functools.partial(ANSWERS[name], self)


def _start(nvml: FakeNvml) -> None:
    if nvml.failure:
        raise getattr(FakeNvml, nvml.failure)


def _memory(nvml: FakeNvml, handle: Any, version: int) -> Any:
    if handle.memory is None:
        raise nvml.NVMLError
    return SimpleNamespace(total=handle.memory, free=handle.memory - handle.used, used=handle.used)


def _slice(nvml: FakeNvml, handle: FakeGpu, place: int) -> FakeSlice:
    """Slices lie at every other place."""
    present = {2 * position: found for position, found in enumerate(handle.slices or ())}
    if place not in present:
        raise nvml.NVMLError
    return present[place]


def _processes(nvml: FakeNvml, handle: Any) -> list[Any]:
    if handle.processes is None:
        raise nvml.NVMLError
    return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in handle.processes]


ANSWERS: dict[str, Callable[..., Any]] = {
    "nvmlInit": _start,
    "nvmlShutdown": lambda nvml: None,
    "nvmlSystemGetDriverVersion": lambda nvml: "580.65.06",
    "nvmlDeviceGetCount": lambda nvml: len(nvml.gpus),
    "nvmlDeviceGetHandleByIndex": lambda nvml, index: nvml.gpus[index],
    "nvmlDeviceGetUUID": lambda nvml, handle: handle.uuid,
    "nvmlDeviceGetName": lambda nvml, handle: handle.name,
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetCudaComputeCapability": lambda nvml, handle: handle.capability,
    "nvmlDeviceGetMigMode": lambda nvml, handle: [0, 0] if handle.slices is None else [1, 1],
    "nvmlDeviceGetMaxMigDeviceCount": lambda nvml, handle: 7,
    "nvmlDeviceGetMigDeviceHandleByIndex": _slice,
    "nvmlDeviceGetPciInfo": lambda nvml, handle: SimpleNamespace(busId=handle.bus),
    "nvmlDeviceGetP2PStatus": lambda nvml, one, other, index: 0 if nvml.nvlink else 3,
    "nvmlDeviceGetTopologyCommonAncestor": lambda nvml, one, other: nvml.level,
    "nvmlDeviceGetComputeRunningProcesses": _processes,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda nvml, handle: handle.reasons,
}
