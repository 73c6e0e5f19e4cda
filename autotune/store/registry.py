"""Where profiles live, and which of them fits a machine.

Project first (``profiles/<machine key>/<target>.yaml``, beside the training script and under version control), then
the user's data folder in the same layout. A lookup never raises: training must start with or without a profile.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from platformdirs import user_data_dir

from autotune.core.errors import ProfileError
from autotune.core.machine import MachineType
from autotune.core.profile import Profile
from autotune.store import profiles

APPLICATION = "torch-autotune"
MAX_FILES = 500
"""Most files read in one folder tree: a wrong folder must not delay the start of training."""
NAMING = 'autotune.load(target="NAME") or autotune.load("profiles/...yaml")'


@dataclass(frozen=True)
class Match:
    """A profile that fits this machine.

    Attributes:
        profile: what was found.
        path: where.
        exact: True for the same machine key. Otherwise architecture and kind of device agree, and the runtime
            clamps the settings to what is here.
        notes: what differs, one line each.
    """

    profile: Profile
    path: Path
    exact: bool
    notes: tuple[str, ...]

    def with_notes(self, notes: Iterable[str]) -> Match:
        """The same with more ``notes``."""
        return replace(self, notes=(*self.notes, *notes))


@dataclass(frozen=True)
class Lookup:
    """The best match or None, and notes (also without a match): files that were skipped, or how to name the target."""

    match: Match | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ProfileFile:
    """One file: its profile, or the problem that keeps it from being read."""

    path: Path
    profile: Profile | None
    problem: str = ""


def default_roots() -> tuple[Path, ...]:
    """The folders to search, nearest first."""
    try:
        return Path("profiles"), Path(user_data_dir(APPLICATION, appauthor=False)) / "profiles"
    except (OSError, KeyError, RuntimeError):  # no home folder
        return (Path("profiles"),)


def default_path(machine_key: str, target: str, root: Path | None = None, nnodes: int = 1) -> Path:
    """Where the profile of ``target`` on this type of machine, or ``nnodes`` of them together, belongs."""
    file = safe_name(target) + (f".{nnodes}nodes" if nnodes > 1 else "") + ".yaml"
    return (root or Path("profiles")) / safe_name(machine_key) / file


def safe_name(text: str) -> str:
    """``text`` as one visible file name: letters, digits, ``_``, ``-`` and inner dots."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text[:100]).strip(".-") or "unnamed"


def find(
    machine: MachineType, target: str | None, roots: Sequence[Path] | None = None, nnodes: int = 1
) -> Match | None:
    """The best profile for ``machine`` and ``target``, or None; see `search`."""
    return search(machine, target, roots, nnodes).match


def search(machine: MachineType, target: str | None, roots: Sequence[Path] | None = None, nnodes: int = 1) -> Lookup:
    """Look for a profile: the same machine key in the nearest folder, else the compatible machine that differs least.
    The profile of an interrupted run is taken only where no complete one fits.

    Args:
        machine: this machine.
        target: the task's name. Without one nothing matches: profiles of other tasks do not apply.
        roots: folders to look in instead of `default_roots`.
        nnodes: how many machines train together. A profile for the same number is preferred, then one for a single
            machine; profiles for other numbers do not match.
    """
    roots = default_roots() if roots is None else roots
    if target is None:
        return Lookup(None, (_how_to_name_the_target(machine, roots),))
    skipped: list[str] = []
    interrupted: Match | None = None
    for exact in (True, False):
        found = list(_candidates(machine, target, roots, exact, skipped))
        complete, partial = (
            _best([item for item in found if item[1].evidence.partial is kind], machine, exact, nnodes)
            for kind in (False, True)
        )
        if complete is not None:
            return Lookup(complete.with_notes(skipped), tuple(skipped))
        interrupted = interrupted or partial
    return Lookup(interrupted.with_notes(skipped) if interrupted else None, tuple(skipped))


def list_profiles(roots: Sequence[Path] | None = None) -> tuple[ProfileFile, ...]:
    """Every profile file under ``roots``, readable or not."""
    return tuple(_read(path) for root in (default_roots() if roots is None else roots) for path in _files(root))


def another_torch(profile: Profile, here: str | None) -> tuple[str, ...]:
    """A line where ``profile`` was measured with another minor version of PyTorch than ``here``; else nothing."""
    measured = str(profile.software.get("torch") or "")
    if not measured or not here or _minor(measured) == _minor(here):
        return ()
    return (f"the profile was measured with PyTorch {measured}, this is {here}: its speedup may differ",)


def another_machine(profile: Profile, machine: MachineType) -> tuple[str, ...]:
    """A line where ``profile`` was measured on another type of machine than ``machine``; else nothing."""
    if profile.key == machine.key:
        return ()
    return (f"the profile was measured on {profile.key}, this is {machine.key}: its speedup may differ",)


def targets(machine: MachineType, roots: Sequence[Path] | None = None) -> list[str]:
    """Names of the tasks that have a profile for this machine or a compatible one."""
    roots = default_roots() if roots is None else roots
    found = (item for exact in (True, False) for item in _candidates(machine, None, roots, exact, []))
    return sorted({profile.target.name for _, profile in found})


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


def differences(profile: Profile, machine: MachineType) -> tuple[str, ...]:
    """One line per machine fact that differs: ``threads: profile 64, here 8``."""
    theirs, ours = profile.machine["facts"], machine.as_dict()["facts"]
    return tuple(_difference(name, theirs[name], ours[name]) for name in ours if _differs(theirs[name], ours[name]))


def _best(
    found: Sequence[tuple[Path, Profile]],
    machine: MachineType,
    exact: bool,
    nnodes: int,
) -> Match | None:
    """The first profile for the same machine, or else the one whose machine differs least."""
    fitting = [item for item in found if item[1].target.nnodes == nnodes]
    fitting = fitting or [item for item in found if item[1].target.nnodes == 1]
    if not fitting:
        return None
    path, profile = fitting[0] if exact else min(fitting, key=lambda item: len(differences(item[1], machine)))
    return Match(profile, path, exact, differences(profile, machine))


def _how_to_name_the_target(machine: MachineType, roots: Iterable[Path]) -> str:
    """How to name the target, and the targets that have a profile for this machine."""
    names = sorted({profile.target.name for _, profile in _candidates(machine, None, roots, True, [])})
    known = f"; this machine has profiles for: {', '.join(names)}" if names else ""
    return f"no script names the target: write {NAMING}{known}"


def _differs(theirs: Any, ours: Any) -> bool:
    """True where two facts differ; the order of features does not matter."""
    if isinstance(ours, list):
        return sorted(theirs) != sorted(ours)
    return bool(theirs != ours)


def _difference(name: str, theirs: Any, ours: Any) -> str:
    if not isinstance(ours, list):
        return f"{name}: profile {theirs}, here {ours}"
    missing = [item for item in theirs if item not in ours]
    extra = [item for item in ours if item not in theirs]
    parts = [f"not here: {', '.join(missing)}"] * bool(missing) + [f"only here: {', '.join(extra)}"] * bool(extra)
    return f"{name}: {'; '.join(parts) or f'profile {len(theirs)}, here {len(ours)}'}"


def _candidates(
    machine: MachineType, target: str | None, roots: Iterable[Path], exact: bool, skipped: list[str]
) -> Iterator[tuple[Path, Profile]]:
    """Fitting profiles. The first pass opens the machine's own folder only, so that the usual start is quick."""
    for root in roots:
        own = safe_name(machine.key)
        stems = (None,) if target is None else _stems(safe_name(target))
        for path in itertools.chain.from_iterable(_files(root, own if exact else None, stem) for stem in stems):
            if not exact and path.parent.name == own:
                continue
            listed = _read(path)
            if listed.profile is None:
                skipped.append(f"skipped {listed.problem}")
            elif (target is None or listed.profile.target.name == target) and _fits(listed.profile, machine, exact):
                yield path, listed.profile


def _stems(name: str) -> tuple[str, ...]:
    """Patterns of file names that may hold profiles of the target ``name``."""
    return name, f"{name}.*nodes", f"{name}.partial", f"{name}.*nodes.partial"


def _fits(profile: Profile, machine: MachineType, exact: bool) -> bool:
    if exact:
        return profile.key == machine.key
    device = "cuda" if machine.gpus else "cpu"
    return bool(profile.machine["facts"]["architecture"] == machine.architecture) and profile.target.device == device


def _files(root: Path, folder: str | None = None, stem: str | None = None) -> list[Path]:
    try:
        return sorted(path for path in root.glob(f"{folder or '*'}/{stem or '*'}.yaml") if _visible(path))[:MAX_FILES]
    except OSError:
        return []


def _visible(path: Path) -> bool:
    return not path.name.startswith(".") and not path.parent.name.startswith(".")


def _read(path: Path) -> ProfileFile:
    try:
        return ProfileFile(path, profiles.read(path))
    except ProfileError as error:
        return ProfileFile(path, None, str(error).splitlines()[0])
