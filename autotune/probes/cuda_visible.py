"""Which GPUs ``CUDA_VISIBLE_DEVICES`` leaves, read the way CUDA reads it (and ``torch.cuda`` after it).

Indices are read like C's ``strtoul`` and the first token that names no device ends the list; a device named twice
empties it. A process sees one MIG slice at most, and then no whole GPU beside it (NVIDIA MIG user guide, "CUDA device
enumeration").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """A GPU, or a MIG slice of GPU number ``parent``, as the driver lists it."""

    uuid: str
    parent: int | None = None
    sliced: bool = False
    """A whole GPU in MIG mode: only its slices can compute."""
    alias: str | None = None
    """A slice's old name: ``MIG-GPU-<uuid>/<instance>/<compute instance>``."""


def visible(value: str | None, devices: Sequence[Device]) -> list[Device]:
    """Devices in the order CUDA numbers them. ``value`` is None where the variable is not set."""
    gpus = [device for device in devices if device.parent is None]
    slices = [device for device in devices if device.parent is not None]
    if value is None:
        chosen = gpus
    elif value.strip().startswith("MIG-"):
        return _by_name(value, slices)[:1]
    elif value.strip().startswith("GPU-"):
        chosen = _by_name(value, gpus)
    else:
        chosen = _by_index(value, gpus)
    parents = {gpus.index(gpu) for gpu in chosen if gpu.sliced}
    first_slice = [device for device in slices if device.parent in parents][:1]
    return first_slice or [gpu for gpu in chosen if not gpu.sliced]


def _by_index(value: str, gpus: Sequence[Device]) -> list[Device]:
    chosen: list[Device] = []
    for token in value.split(","):
        match = re.match(r"\s*\+?([0-9]+)", token)
        if not match or int(match[1]) >= len(gpus):
            break
        if gpus[int(match[1])] in chosen:
            return []
        chosen.append(gpus[int(match[1])])
    return chosen


def _by_name(value: str, devices: Sequence[Device]) -> list[Device]:
    """Devices by uuid; a beginning is enough as long as only one device has it."""
    chosen: list[Device] = []
    for token in map(str.strip, value.split(",")):
        found = [device for device in devices if _names(token, device)]
        if len(found) != 1:
            break
        if found[0] in chosen:
            return []
        chosen.append(found[0])
    return chosen


def _names(token: str, device: Device) -> bool:
    return len(token) > 4 and (device.uuid.startswith(token) or token == device.alias)
