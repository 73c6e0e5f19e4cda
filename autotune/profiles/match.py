"""Compare a profile with a machine, field by field, for one verdict on all of it. Pure; never raises.

exact        the same type of machine and the same software
compatible   settings are clamped to what is here, or the software was updated
similar      another processor, GPU or size: whether the speedup holds is open; `autotune check` measures it
none         another task, device or architecture: nothing of it can be applied
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from autotune import devices
from autotune.devices import CPU, CUDA, Device
from autotune.probes.facts import Inventory
from autotune.profiles.format import MachineType, Profile, machine_type, versions

EXACT, COMPATIBLE, SIMILAR, NONE = VERDICTS = ("exact", "compatible", "similar", "none")
APPLIED = (EXACT, COMPATIBLE)
"""Verdicts with which a profile is applied without being named."""
MOST_TIMES = 2.0
"""A machine with up to so many times the threads or GPUs, or one of so many, is compatible."""


@dataclass(frozen=True)
class Difference:
    """A field that differs, the verdict on it, and the difference in words: ``profile 64, here 8``."""

    field: str
    verdict: str
    words: str


@dataclass(frozen=True)
class Match:
    """A profile, the bytes and place of its file (``path`` is None at a URL), and how well it fits a machine.

    Of the fields that are ``differing``, those that fit least come first.
    """

    profile: Profile
    differing: tuple[Difference, ...]
    source: str = ""
    content: bytes = field(default=b"", repr=False)
    path: Path | None = None

    @property
    def verdict(self) -> str:
        """Return the verdict on the field that fits least."""
        return self.differing[0].verdict if self.differing else EXACT

    @property
    def sentence(self) -> str:
        """Return the verdict in one sentence, with ``threads: profile 64, here 8``; empty if it is exact."""
        fields = [each for each in self.differing if each.field != "key"] or self.differing
        key, why = self.profile.key, "; ".join(f"{each.field}: {each.words}" for each in fields)
        return {
            EXACT: "",
            COMPATIBLE: f"the profile was measured on {key}, which is compatible: its speedup may differ ({why})",
            SIMILAR: f"the profile was measured on {key}, which is only similar: autotune check --force PROFILE"
            f" TARGET shows whether its speedup holds here ({why})",
            NONE: f"the profile was measured on {key} and does not fit here ({why})",
        }[self.verdict]


@dataclass(frozen=True)
class Here:
    """This machine, its versions as far as they are known, and the target that a profile is compared with.

    The task has ``names``, the present one first, or none for any task; PyTorch trains on the ``accelerator`` if there
    is no CUDA device.
    """

    machine: MachineType
    software: Mapping[str, Any]
    names: tuple[str, ...] = ()
    accelerator: Device = CPU

    @property
    def device(self) -> Device:
        """Return the device that training takes here if nobody chooses."""
        return CUDA if self.machine.gpus else self.accelerator

    @classmethod
    def on(cls, inventory: Inventory, *names: str) -> Here:
        """Return the machine that ``inventory`` describes, and the task of one of the ``names``."""
        return cls(machine_type(inventory), versions(inventory), names, inventory.device)


def compare(profile: Profile, here: Here, source: str = "", content: bytes = b"", path: Path | None = None) -> Match:
    """Compare ``profile``, which comes from ``source``, with what is ``here``."""
    found = [each for each in _fields(profile, here) if each.verdict != EXACT]
    worst_first = sorted(found, key=lambda each: -VERDICTS.index(each.verdict))
    return Match(profile, tuple(worst_first), source, content, path)


def _fields(profile: Profile, here: Here) -> Iterator[Difference]:
    """Yield every field that is compared, with its verdict."""
    target, machine = profile.target, here.machine
    device, own = devices.of(target.device), here.device
    on_cpu = device.on_host
    if here.names:
        yield _field("target", target.name, here.names[0], EXACT if target.name in here.names else NONE)
    # a profile for the CPU fits a machine with GPUs only if it was made on one
    fits = own.on_host or bool(profile.machine.gpus) if on_cpu else device.type == own.type
    yield _field("device", target.device, own.type, EXACT if fits else NONE)
    yield _field("key", profile.key, machine.key, _or(COMPATIBLE, profile.key, machine.key))
    for name, verdict_on in FACTS.items():
        theirs, ours = getattr(profile.machine, name), getattr(machine, name)
        verdict = verdict_on(theirs, ours)
        unused = on_cpu and name.startswith("gpu") and verdict != EXACT  # GPUs decide nothing then
        yield _field(name, theirs, ours, COMPATIBLE if unused else verdict)
    for name, verdict_on in SOFTWARE.items():
        theirs, ours = profile.software.get(name), here.software.get(name)
        if theirs is not None and ours is not None:
            yield _field(name, theirs, ours, verdict_on(theirs, ours))


def _field(name: str, theirs: Any, ours: Any, verdict: str) -> Difference:
    if name != "features":
        return Difference(name, verdict, f"profile {_text(theirs)}, here {_text(ours)}")
    sides = {"not here": sorted(set(theirs) - set(ours)), "only here": sorted(set(ours) - set(theirs))}
    return Difference(name, verdict, "; ".join(f"{side}: {_text(found)}" for side, found in sides.items() if found))


def _text(value: Any) -> str:
    if isinstance(value, str) or not isinstance(value, Iterable):
        return str(value)
    names = list(map(str, value))
    counts = {name: names.count(name) for name in names}
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in counts.items()) or "none"


# Verdicts on what the profile says and what is here -------------------------------------------------------------------


def _or(verdict: str, theirs: Any, ours: Any) -> str:
    """Return ``verdict`` for any difference."""
    return EXACT if theirs == ours else verdict


def _count(theirs: float, ours: float) -> str:
    if theirs == ours:
        return EXACT
    return COMPATIBLE if max(theirs, ours) <= MOST_TIMES * min(theirs, ours) else SIMILAR


def _features(theirs: Sequence[str], ours: Sequence[str]) -> str:
    """Compare instruction sets: one that is missing here decides speed, one that is only here may be of use."""
    return SIMILAR if set(theirs) - set(ours) else COMPATIBLE if set(ours) - set(theirs) else EXACT


def _gpus(theirs: Sequence[str], ours: Sequence[str]) -> str:
    if sorted(theirs) == sorted(ours):
        return EXACT
    if not theirs or not ours:
        return NONE
    return _count(len(theirs), len(ours)) if set(theirs) == set(ours) else SIMILAR


def _gpu_memory(theirs: Sequence[int], ours: Sequence[int]) -> str:
    more = len(theirs) != len(ours) and set(theirs) == set(ours)  # or fewer of the same
    return COMPATIBLE if more else _or(SIMILAR, theirs, ours)


def _version(numbers: int, theirs: Any, ours: Any, major: str = COMPATIBLE) -> str:
    """Compare the first ``numbers`` of two versions. If the first one differs, the verdict is ``major``."""
    first, second = (str(text).split("+")[0].split(".")[:numbers] for text in (theirs, ours))
    return EXACT if first == second else COMPATIBLE if first[0] == second[0] else major


FACTS: Mapping[str, Callable[[Any, Any], str]] = {
    "vendor": partial(_or, SIMILAR),
    "family": partial(_or, SIMILAR),
    "architecture": partial(_or, NONE),
    "threads": _count,
    "cores": _count,
    "sockets": partial(_or, COMPATIBLE),
    "nodes": partial(_or, COMPATIBLE),
    "memory_gib": partial(_or, COMPATIBLE),
    "gpus": _gpus,
    "features": _features,
    "gpu_gib": _gpu_memory,
    "gpu_links": partial(_or, SIMILAR),
}
"""All fields of `MachineType` but its key."""
SOFTWARE: Mapping[str, Callable[[Any, Any], str]] = {
    "torch": partial(_version, 2, major=SIMILAR),
    "cuda": partial(_version, 1),
    "driver": partial(_version, 1),
}
"""Versions that decide speed, as far as they are known on both sides."""
