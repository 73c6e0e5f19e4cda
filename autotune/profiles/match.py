"""Compare a profile with a machine, field by field, for one verdict on all of it. Pure; never raises.

exact        the same type of machine and the same software
compatible   settings are clamped to what is here, or the software was updated
similar      another processor, GPU or size: whether the speedup holds is open; `autotune check` measures it
none         another task, device or architecture: nothing of it can be applied
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from autotune.probes.facts import Inventory
from autotune.profiles.format import MachineType, Profile, machine_type, versions

EXACT, COMPATIBLE, SIMILAR, NONE = VERDICTS = ("exact", "compatible", "similar", "none")
APPLIED = (EXACT, COMPATIBLE)
"""Verdicts with which a profile is applied by itself."""
MOST_TIMES = 2.0
"""A machine with up to so many times the threads or GPUs, or one of so many, is compatible."""
DIFFERING = {"architecture": NONE, "sockets": COMPATIBLE, "nodes": COMPATIBLE, "memory_gib": COMPATIBLE}
"""Verdicts on facts that differ; on all others it is `SIMILAR`."""
SOFTWARE = {"torch": 2, "cuda": 1, "driver": 1}
"""Versions that decide speed, and how many of their numbers do."""
MISSING = "-"


@dataclass(frozen=True)
class Row:
    """One field: what the profile says, what is here, and the verdict on it."""

    field: str
    theirs: str
    here: str
    verdict: str
    difference: str = ""
    """In words, if ``theirs`` and ``here`` would be long lists."""

    def __str__(self) -> str:
        """Return ``threads: profile 64, here 8``."""
        return f"{self.field}: {self.difference or f'profile {self.theirs}, here {self.here}'}"


@dataclass(frozen=True)
class Comparison:
    """Every field of a profile against a machine."""

    key: str
    """The profile's machine."""
    rows: tuple[Row, ...]

    @property
    def verdict(self) -> str:
        """The verdict of the field that fits least."""
        return max((row.verdict for row in self.rows), key=VERDICTS.index, default=EXACT)

    @property
    def differing(self) -> tuple[Row, ...]:
        """List the fields that differ, those that fit least first."""
        found = [row for row in self.rows if row.verdict != EXACT]
        return tuple(sorted(found, key=lambda row: -VERDICTS.index(row.verdict)))

    @property
    def notes(self) -> tuple[str, ...]:
        """One line per field that differs: ``threads: profile 64, here 8``."""
        rows = [row for row in self.differing if row.field != "key"] or self.differing
        return tuple(map(str, rows))

    @property
    def sentence(self) -> str:
        """The verdict in one sentence for people; empty if it is exact."""
        why = "; ".join(self.notes)
        return {
            EXACT: "",
            COMPATIBLE: f"the profile was measured on {self.key}, which is compatible: its speedup may differ ({why})",
            SIMILAR: f"the profile was measured on {self.key}, which is only similar: autotune check PROFILE TARGET"
            f" --force shows whether its speedup holds here ({why})",
            NONE: f"the profile was measured on {self.key} and does not fit here ({why})",
        }[self.verdict]


@dataclass(frozen=True)
class Here:
    """The machine and target that a profile is compared with.

    Attributes:
        machine: this machine.
        software: its versions, as profiles have them; unknown ones may be left out.
        target: the task's name; None for any.
    """

    machine: MachineType
    software: Mapping[str, Any]
    target: str | None = None

    @classmethod
    def on(cls, inventory: Inventory, target: str | None = None) -> Here:
        """Return the machine that ``inventory`` describes."""
        return cls(machine_type(inventory), versions(inventory), target)


def compare(profile: Profile, here: Here) -> Comparison:
    """Compare ``profile`` with what is ``here``."""
    return Comparison(profile.key, tuple(_rows(profile, here)))


def _rows(profile: Profile, here: Here) -> Iterator[Row]:
    target, machine = profile.target, here.machine
    if here.target is not None:
        yield _row("target", target.name, here.target, EXACT if target.name == here.target else NONE)
    yield _row("device", target.device, "cuda" if machine.gpus else "cpu", _device(profile, here))
    yield _row("key", profile.key, machine.key, EXACT if profile.key == machine.key else COMPATIBLE)
    for name in (each.name for each in fields(MachineType) if each.name != "key"):
        row = _fact(name, getattr(profile.machine, name), getattr(machine, name))
        unused = target.device == "cpu" and name.startswith("gpu") and row.verdict != EXACT  # GPUs decide nothing then
        yield replace(row, verdict=COMPATIBLE) if unused else row
    for name in SOFTWARE:
        theirs, ours = profile.software.get(name), here.software.get(name)
        if theirs is not None or ours is not None:
            yield _row(name, theirs, ours, _version(name, theirs, ours))


def _device(profile: Profile, here: Here) -> str:
    """Return the verdict on the device: a profile for the CPU fits a machine with GPUs only if it was made on one."""
    if profile.target.device == "cuda":
        return EXACT if here.machine.gpus else NONE
    return NONE if here.machine.gpus and not profile.machine.gpus else EXACT


def _fact(name: str, theirs: Any, ours: Any) -> Row:
    if name == "features":
        return _features(theirs, ours)
    if name == "gpus":
        return _gpus(theirs, ours)
    verdict = DIFFERING.get(name, SIMILAR)
    if theirs == ours:
        verdict = EXACT
    elif name in ("threads", "cores") and _near(theirs, ours):
        verdict = COMPATIBLE
    elif name == "gpu_gib" and len(theirs) != len(ours) and set(theirs) == set(ours):
        verdict = COMPATIBLE  # more or fewer of the same
    return _row(name, theirs, ours, verdict)


def _features(theirs: Sequence[str], ours: Sequence[str]) -> Row:
    """Compare instruction sets: one that is missing here decides speed, one that is only here may be of use."""
    missing, extra = sorted(set(theirs) - set(ours)), sorted(set(ours) - set(theirs))
    verdict = SIMILAR if missing else COMPATIBLE if extra else EXACT
    parts = [f"not here: {_text(missing)}"] * bool(missing) + [f"only here: {_text(extra)}"] * bool(extra)
    return Row("features", _text(theirs), _text(ours), verdict, "; ".join(parts))


def _gpus(theirs: Sequence[str], ours: Sequence[str]) -> Row:
    if sorted(theirs) == sorted(ours):
        return _row("gpus", theirs, ours, EXACT)
    if not theirs or not ours:
        return _row("gpus", theirs, ours, NONE)
    near = set(theirs) == set(ours) and _near(len(theirs), len(ours))
    return _row("gpus", _counted(theirs), _counted(ours), COMPATIBLE if near else SIMILAR)


def _version(name: str, theirs: Any, ours: Any) -> str:
    """Compare versions, as far as known. PyTorch of the same major version is an update, else all is open."""

    def differ(parts: int) -> bool:
        first, second = (str(text).split("+")[0].split(".")[:parts] for text in (theirs, ours))
        return first != second

    if theirs is None or ours is None or not differ(SOFTWARE[name]):
        return EXACT
    return SIMILAR if name == "torch" and differ(1) else COMPATIBLE


def _near(theirs: float, ours: float) -> bool:
    return bool(max(theirs, ours) <= MOST_TIMES * min(theirs, ours))


def _counted(names: Sequence[str]) -> str:
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


def _row(field: str, theirs: Any, ours: Any, verdict: str) -> Row:
    return Row(field, _text(theirs), _text(ours), verdict)


def _text(value: Any) -> str:
    if value is None:
        return MISSING
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ", ".join(map(str, value)) or "none"
    return str(value)
