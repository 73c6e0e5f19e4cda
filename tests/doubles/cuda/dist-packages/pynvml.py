"""NVML over the cards of the double; without ``CUDA_DOUBLE`` there is no driver."""

import os
from types import SimpleNamespace

import fake_cards

NVML_P2P_CAPS_INDEX_NVLINK, nvmlMemory_v2 = 2, 0x02000028  # noqa: N816


class NVMLError(Exception):
    """As in pynvml, the base of all."""


class NVMLError_LibraryNotFound(NVMLError):  # noqa: N801
    """No driver library."""


class NVMLError_DriverNotLoaded(NVMLError):  # noqa: N801
    """No kernel module."""


class NVMLError_NotSupported(NVMLError):  # noqa: N801
    """Not of this device: GB10 and others share the host's memory."""


def nvmlInit() -> None:  # noqa: N802
    if "CUDA_DOUBLE" not in os.environ or "library" in fake_cards.WITHOUT:
        raise NVMLError_LibraryNotFound


def _memory(card, version=None):
    if "nvml" in fake_cards.WITHOUT:
        raise NVMLError_NotSupported
    used = sum(fake_cards.Shared().held(card).values())
    return SimpleNamespace(total=fake_cards.MEMORY, free=fake_cards.MEMORY - used, used=used)


def _processes(card):
    held = fake_cards.Shared().held(card)
    return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in held.items() if size]


ANSWERS = {
    "nvmlShutdown": lambda: None,
    "nvmlSystemGetDriverVersion": lambda: "580.65.06",
    "nvmlDeviceGetCount": lambda: len(fake_cards.BY_BUS),
    "nvmlDeviceGetHandleByIndex": lambda index: fake_cards.BY_BUS[index],
    "nvmlDeviceGetUUID": lambda card: card.uuid,
    "nvmlDeviceGetName": lambda card: card.name,
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetCudaComputeCapability": lambda card: card.capability,
    "nvmlDeviceGetPciInfo": lambda card: SimpleNamespace(busId=card.bus),
    "nvmlDeviceGetP2PStatus": lambda *_: 3,
    "nvmlDeviceGetTopologyCommonAncestor": lambda *_: 30,
    "nvmlDeviceGetComputeRunningProcesses": _processes,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda _card: 1,
}
globals().update(ANSWERS)
