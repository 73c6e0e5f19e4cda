"""NVIDIA GPUs by NVML, which opens no CUDA context: a process with one can no longer fork workers.

AMD and Apple GPUs are not probed. ``CUDA_VISIBLE_DEVICES`` is read the way CUDA reads it (and ``torch.cuda`` after it):
the first token that names no device ends the list; a device named twice empties it. A process sees one MIG slice at
most, and then no whole GPU beside it (NVIDIA MIG user guide, "CUDA device enumeration").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.probes.facts import Gpu
from autotune.probes.system import System

_LINKS = ((10, "pcie-switch"), (20, "pcie-switch"), (30, "host-bridge"), (40, "numa"), (50, "system"))
"""``nvmlGpuTopologyLevel_t``: the closest common ancestor of two devices."""
_THROTTLES = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}
"""``nvmlClocksEventReason*``: idling and the user's own clock settings are left out."""


@dataclass(frozen=True)
class Device:
    """A GPU, or a MIG slice of GPU number ``parent``, as the driver lists it."""

    uuid: str
    parent: int | None = None
    sliced: bool = False
    """A whole GPU in MIG mode: only its slices can compute."""
    nvml: Any = field(default=None, compare=False)
    """NVML's handle."""
    whole: Any = field(default=None, compare=False)
    """That of the GPU itself, for what NVML does not answer for a slice."""


def probe(system: System, nvml: Any = None) -> tuple[Gpu, ...]:
    """Return the GPUs this process may use, in CUDA's order with ``CUDA_DEVICE_ORDER=PCI_BUS_ID``.

    ``nvml`` is pynvml or a double of it. Without a driver there is no GPU: an empty tuple. A driver
    that fails raises NVML's own error.
    """
    nvml = nvml or _pynvml()
    if nvml is None or not _start(nvml):
        return ()
    try:
        chosen = visible(system.env.get("CUDA_VISIBLE_DEVICES"), _devices(nvml))
        return tuple(_gpu(system, nvml, index, chosen) for index in range(len(chosen)))
    finally:
        nvml.nvmlShutdown()


def visible(value: str | None, devices: Sequence[Device]) -> list[Device]:
    """Return devices in the order CUDA numbers them. ``value`` is None if the variable is not set."""
    gpus = [device for device in devices if device.parent is None]
    slices = [device for device in devices if device.parent is not None]
    if value is not None and value.strip().startswith("MIG-"):
        return _listed(value, slices)[:1]
    chosen = gpus if value is None else _listed(value, gpus)
    parents = {gpus.index(gpu) for gpu in chosen if gpu.sliced}
    first_slice = [device for device in slices if device.parent in parents][:1]
    return first_slice or [gpu for gpu in chosen if not gpu.sliced]


def _listed(value: str, devices: Sequence[Device]) -> list[Device]:
    """Find devices by number or uuid; a beginning of it is enough as long as only one device has it."""
    chosen: list[Device] = []
    for token in map(str.strip, value.split(",")):
        number = int(token) if token.isdecimal() else None
        found = [each for place, each in enumerate(devices) if place == number or _begins(each.uuid, token)]
        if len(found) != 1:
            break
        if found[0] in chosen:
            return []
        chosen.append(found[0])
    return chosen


def _begins(uuid: str, token: str) -> bool:
    return len(token) > len("GPU-") and uuid.startswith(token)


def _pynvml() -> Any:
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml


def _start(nvml: Any) -> bool:
    """Open NVML; False if the machine has no driver."""
    try:
        nvml.nvmlInit()
    except (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded):
        return False
    return True


def _devices(nvml: Any) -> list[Device]:
    """Return whole GPUs in PCI order, then every MIG slice."""
    gpus, slices = [], []
    for index in range(nvml.nvmlDeviceGetCount()):
        whole = nvml.nvmlDeviceGetHandleByIndex(index)
        mig = _ask(nvml, "nvmlDeviceGetMigMode", whole)
        sliced = bool(mig) and mig[0] == 1
        gpus.append(Device(nvml.nvmlDeviceGetUUID(whole), None, sliced, whole, whole))
        for place in range(_ask(nvml, "nvmlDeviceGetMaxMigDeviceCount", whole) or 0) if sliced else ():
            own = _ask(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", whole, place)  # gaps are normal
            if own is not None:
                slices.append(Device(nvml.nvmlDeviceGetUUID(own), index, False, own, whole))
    return gpus + slices


def _gpu(system: System, nvml: Any, index: int, devices: Sequence[Device]) -> Gpu:
    own = devices[index]
    is_slice = own.parent is not None
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(own.whole)
    # The second version keeps the driver's reserve apart from what programs use.
    memory = nvml.nvmlDeviceGetMemoryInfo(own.nvml, nvml.nvmlMemory_v2)
    processes = _ask(nvml, "nvmlDeviceGetComputeRunningProcesses", own.nvml) or ()
    others = [] if is_slice else [other for other in devices if other is not own]
    return Gpu(
        index=index,
        uuid=own.uuid,
        name=nvml.nvmlDeviceGetName(own.nvml),
        memory_total=memory.total,
        memory_free=memory.free,
        capability=(int(major), int(minor)),
        mig=is_slice,
        node=_numa_node(system, nvml, own.whole),
        links=tuple(filter(None, (_link(nvml, own.nvml, other.nvml) for other in others))),
        foreign_processes=sum(process.pid != system.pid() for process in processes),
        clocks_throttled=_throttled(nvml, own.whole),
        driver=_ask(nvml, "nvmlSystemGetDriverVersion"),
    )


def _link(nvml: Any, one: Any, other: Any) -> str | None:
    status = _ask(nvml, "nvmlDeviceGetP2PStatus", one, other, nvml.NVML_P2P_CAPS_INDEX_NVLINK)
    if status == 0:  # NVML_P2P_STATUS_OK
        return "nvlink"
    level = _ask(nvml, "nvmlDeviceGetTopologyCommonAncestor", one, other)
    return next((name for highest, name in _LINKS if level is not None and level <= highest), None)


def _numa_node(system: System, nvml: Any, handle: Any) -> int | None:
    """Return the GPU's NUMA node. NVML writes the PCI domain with eight digits, the kernel with four."""
    info = _ask(nvml, "nvmlDeviceGetPciInfo", handle)
    bus = info.busId.lower() if info else ""
    match = re.search(r"([0-9a-f]{4}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])$", bus)
    node = system.read(f"/sys/bus/pci/devices/{match[1]}:{match[2]}/numa_node") if match else None
    return int(node) if node and node.isdecimal() else None


def _throttled(nvml: Any, handle: Any) -> tuple[str, ...]:
    reasons = _ask(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", handle)  # this name all drivers know
    return tuple(name for bit, name in _THROTTLES.items() if (reasons or 0) & bit)


def _ask(nvml: Any, function: str, *arguments: Any) -> Any:
    """Call an optional NVML function; None if this driver or device does not have it."""
    try:
        return getattr(nvml, function)(*arguments)
    except (nvml.NVMLError, AttributeError):
        return None
