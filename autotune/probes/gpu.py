"""NVIDIA GPUs by NVML, which opens no CUDA context: a process with one can no longer fork workers.

AMD and Apple GPUs are not probed. ``CUDA_VISIBLE_DEVICES`` is read the way CUDA reads it (and ``torch.cuda`` after it):
the first token that names no device ends the list; a device named twice empties it. A process sees one MIG slice at
most, and then no whole GPU beside it (NVIDIA MIG user guide, "CUDA device enumeration").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autotune.probes.facts import Gpu
from autotune.probes.system import System

_LINKS = {0: "pcie-switch", 10: "pcie-switch", 20: "pcie-switch", 30: "host-bridge", 40: "numa", 50: "system"}
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
    """A GPU or a MIG slice as the driver lists it."""

    uuid: str
    nvml: Any = None
    """NVML's handle."""
    whole: Any = None
    """NVML's handle of the GPU itself, for what NVML does not answer for a slice."""
    slices: tuple[Device, ...] | None = None
    """Those of a GPU in MIG mode: only they can compute."""


def probe(system: System, nvml: Any = None) -> tuple[Gpu, ...]:
    """Return the GPUs this process may use, in the order of the PCI bus: CUDA's own if they are alike.

    ``nvml`` is pynvml or a double of it. Without a driver there is no GPU: an empty tuple. A driver
    that fails raises NVML's own error.
    """
    if nvml is None:
        import pynvml

        nvml = pynvml
    try:
        nvml.nvmlInit()
    except (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded):
        return ()
    try:
        chosen = visible(system.env.get("CUDA_VISIBLE_DEVICES"), _devices(nvml))
        return tuple(_gpu(system, nvml, index, chosen) for index in range(len(chosen)))
    finally:
        nvml.nvmlShutdown()


def visible(value: str | None, gpus: Sequence[Device]) -> list[Device]:
    """Return devices in the order CUDA numbers them. ``value`` is None if the variable is not set."""
    if value is not None and value.strip().startswith("MIG-"):
        return _listed(value, _slices(gpus))[:1]
    chosen = gpus if value is None else _listed(value, gpus)
    return _slices(chosen)[:1] or [gpu for gpu in chosen if gpu.slices is None]


def _slices(gpus: Sequence[Device]) -> list[Device]:
    """Return every MIG slice."""
    return [each for gpu in gpus for each in gpu.slices or ()]


def _listed(value: str, devices: Sequence[Device]) -> list[Device]:
    """Find devices by number or uuid; a beginning of it is enough as long as only one device has it."""
    chosen: list[Device] = []
    for token in map(str.strip, value.split(",")):
        found = [each for place, each in enumerate(devices) if _means(token, place, each)]
        if len(found) != 1:
            break
        if found[0] in chosen:
            return []
        chosen.append(found[0])
    return chosen


def _means(token: str, place: int, device: Device) -> bool:
    """Return True if the token is the device's number or the beginning of its uuid."""
    if token.isdecimal():
        return int(token) == place
    return len(token) > len("GPU-") and device.uuid.startswith(token)


def _devices(nvml: Any) -> list[Device]:
    """Return whole GPUs in PCI order."""
    gpus = []
    for index in range(nvml.nvmlDeviceGetCount()):
        whole = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid, mig = nvml.nvmlDeviceGetUUID(whole), _ask(nvml, "nvmlDeviceGetMigMode", whole)
        slices = None
        if mig and mig[0] == 1:
            places = range(_ask(nvml, "nvmlDeviceGetMaxMigDeviceCount", whole) or 0)
            handles = (_ask(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", whole, place) for place in places)
            present = (handle for handle in handles if handle is not None)  # gaps are normal
            slices = tuple(Device(nvml.nvmlDeviceGetUUID(handle), handle, whole) for handle in present)
        gpus.append(Device(uuid, whole, whole, slices))
    return gpus


def _gpu(system: System, nvml: Any, index: int, devices: Sequence[Device]) -> Gpu:
    """Return the facts of one of the ``devices`` that CUDA shows."""
    own = devices[index]
    is_slice = own.nvml is not own.whole
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(own.whole)
    # The second version keeps the driver's reserve apart from what programs use.
    memory = _ask(nvml, "nvmlDeviceGetMemoryInfo", own.nvml, nvml.nvmlMemory_v2)
    processes = _ask(nvml, "nvmlDeviceGetComputeRunningProcesses", own.nvml) or ()
    throttles = _ask(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", own.whole) or 0  # this name all drivers know
    others = [] if is_slice else [other for other in devices if other is not own]
    return Gpu(
        index=index,
        name=nvml.nvmlDeviceGetName(own.nvml),
        memory_total=memory.total if memory else 0,
        memory_free=memory.free if memory else 0,
        capability=(int(major), int(minor)),
        mig=is_slice,
        node=_numa_node(system, nvml, own.whole),
        links=tuple(filter(None, (_link(nvml, own.nvml, other.nvml) for other in others))),
        foreign_processes=sum(process.pid != system.pid() for process in processes),
        clocks_throttled=tuple(name for bit, name in _THROTTLES.items() if throttles & bit),
        driver=_ask(nvml, "nvmlSystemGetDriverVersion"),
    )


def _link(nvml: Any, one: Any, other: Any) -> str | None:
    """Return the kind of link between two GPUs; None if this driver does not show it."""
    status = _ask(nvml, "nvmlDeviceGetP2PStatus", one, other, nvml.NVML_P2P_CAPS_INDEX_NVLINK)
    if status == 0:  # NVML_P2P_STATUS_OK
        return "nvlink"
    return _LINKS.get(_ask(nvml, "nvmlDeviceGetTopologyCommonAncestor", one, other))


def _numa_node(system: System, nvml: Any, handle: Any) -> int | None:
    """Return the GPU's NUMA node. NVML writes the PCI domain with eight digits, the kernel with four."""
    info = _ask(nvml, "nvmlDeviceGetPciInfo", handle)
    bus = info.busId.lower() if info else ""
    match = re.search(r"([0-9a-f]{4}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])$", bus)
    node = system.read(f"/sys/bus/pci/devices/{match[1]}:{match[2]}/numa_node") if match else None
    return int(node) if node and node.isdecimal() else None


def _ask(nvml: Any, function: str, *arguments: Any) -> Any:
    """Call an optional NVML function; None if this driver or device does not have it."""
    try:
        return getattr(nvml, function)(*arguments)
    except (nvml.NVMLError, AttributeError):
        return None
