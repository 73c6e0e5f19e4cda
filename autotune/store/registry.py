"""Which profile fits this machine best. A lookup never raises: training must start with or without a profile.

The machine's own folder comes first, by the names of its files. Only where nothing there fits are other machines looked
at, and of them only the few whose keys are most like this one's: no folder is read as a whole, however many profiles
there are.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.core import match
from autotune.core.errors import ProfileError
from autotune.core.keys import nearest
from autotune.core.match import Comparison, Here
from autotune.core.profile import Profile
from autotune.store import profiles
from autotune.store.folder import Folder
from autotune.store.layout import file_names
from autotune.store.places import Place, Signed, location_of, places
from autotune.store.remote import Remote
from autotune.store.signed_folder import SignedFolder
from autotune.store.validation import quote

NEIGHBOURS = 6
"""Other machines whose profiles are read, in each registry."""
NAMED = 20
"""Targets that a message names."""
NAMING = 'autotune.load(target="NAME") or autotune.load("profiles/...yaml")'

Registry = Folder | Remote


@dataclass(frozen=True)
class Match:
    """A profile for this target, and how well it fits.

    Attributes:
        profile: what was found.
        path: the file, or the copy of one in a remote registry.
        source: where it comes from, for people.
        comparison: with this machine, field by field.
    """

    profile: Profile
    path: Path
    source: str
    comparison: Comparison

    @property
    def verdict(self) -> str:
        """One of `autotune.core.match.VERDICTS`."""
        return self.comparison.verdict


@dataclass(frozen=True)
class Lookup:
    """What was found.

    Attributes:
        match: the best profile, to be applied; None where none is exact or compatible.
        similar: where there is no ``match``, the best that is only similar: to be checked before it is applied.
        notes: files that were skipped, registries that were not reached, or how to name the target.
        read: how many files were read.
    """

    match: Match | None
    notes: tuple[str, ...] = ()
    similar: Match | None = None
    read: int = 0


@dataclass(frozen=True)
class ProfileFile:
    """One file: its profile, or the problem that keeps it from being read."""

    path: Path
    profile: Profile | None
    problem: str = ""


def registry_at(place: Place) -> Registry:
    """The registry in the folder, or at the URL, ``place``."""
    location, keys = location_of(place), place.keys if isinstance(place, Signed) else None
    if isinstance(location, str):
        return Remote(location, keys=keys)
    return Folder(location) if keys is None else SignedFolder(location, keys)


def search(here: Here, roots: Sequence[Place] | None = None) -> Lookup:
    """Look for a profile: the best verdict first, then the nearest place. The profile of an interrupted run, or of
    one machine where several train together, is taken only where no other fits as well.

    Args:
        here: this machine, and the target. Without one nothing matches: profiles of other tasks do not apply.
        roots: where to look instead of `autotune.store.places.places`.
    """
    registries = [registry_at(place) for place in (places() if roots is None else roots)]
    if here.target is None:
        return Lookup(None, (_how_to_name_the_target(here, registries),))
    seen: list[ProfileFile] = []
    found: list[Match] = []
    for nearby in (False, True):
        for registry in registries:
            found += _candidates(registry, here, here.target, seen, nearby=nearby)
        if any(_settles(one, here) for one in found):
            break
    skipped = tuple(f"skipped {item.problem}" for item in seen if item.profile is None)
    notes = tuple(dict.fromkeys([*skipped, *itertools.chain.from_iterable(each.notes for each in registries)]))
    best = min(found, key=_rank, default=None)
    lookup = Lookup(best, notes, read=len(seen))
    return lookup if best is None or best.verdict in match.APPLIED else replace(lookup, match=None, similar=best)


def list_profiles(roots: Sequence[Place] | None = None) -> tuple[ProfileFile, ...]:
    """Profile files in all places, readable or not; of remote registries the copies."""
    registries = (registry_at(place) for place in (places() if roots is None else roots))
    return tuple(_listed(registry, path) for registry in registries for path in registry.all_files())


def targets(here: Here, roots: Sequence[Place] | None = None) -> list[str]:
    """Names of tasks that have a profile for this type of machine or one like it."""
    registries = [registry_at(place) for place in (places() if roots is None else roots)]
    key = here.machine.key
    near = {registry: nearest(key, {*registry.keys(""), key})[: NEIGHBOURS + 1] for registry in registries}
    return sorted({name for registry, keys in near.items() for other in keys for name in registry.targets(other)})


def _candidates(
    registry: Registry, here: Here, target: str, seen: list[ProfileFile], *, nearby: bool
) -> Iterator[Match]:
    """Profiles of ``target`` in the folder of this machine, or in those of the machines most like it."""
    names, own = file_names(target, here.nnodes), here.machine.key
    keys = nearest(own, set(registry.keys(target)) - {own}) if nearby else [own]
    there = (key for key in keys if registry.has(key, names))
    folders = (registry.files(key, names) for key in itertools.islice(there, NEIGHBOURS))
    for path in itertools.chain.from_iterable(folders):
        item = _made_for(target, _read(path), registry.source(path))
        seen.append(item)
        if item.profile is not None:
            comparison = match.compare(item.profile, here)
            if comparison.verdict != match.NONE:
                yield Match(item.profile, path, registry.source(path), comparison)


def _made_for(target: str, item: ProfileFile, source: str) -> ProfileFile:
    """``item``; a problem in place of the profile where that is another target's, whatever its file is called."""
    if item.profile is None or item.profile.target.name == target:
        return item
    made = item.profile.target.name
    return ProfileFile(item.path, None, f"{source}: was made for the target {quote(made)}, not for {quote(target)}")


def _settles(found: Match, here: Here) -> bool:
    """Whether no other machine's profile can be better."""
    own = found.profile.key == here.machine.key and not found.profile.evidence.partial
    return own and found.verdict in match.APPLIED


def _rank(found: Match) -> tuple[int, bool, bool, int, int]:
    """The best first. Places come in their order, which `min` keeps."""
    profile, comparison = found.profile, found.comparison
    applied = match.APPLIED.index(found.verdict) if found.verdict in match.APPLIED else len(match.APPLIED)
    another = profile.target.nnodes == 1 and any(row.field == "nnodes" for row in comparison.differing)
    machine = sum(row.field not in ("torch", "cuda", "driver") for row in comparison.differing)
    return (int(applied == len(match.APPLIED)), profile.evidence.partial, another, machine, applied)


def _how_to_name_the_target(here: Here, registries: Sequence[Registry]) -> str:
    """How to name the target, and the targets that have a profile for this machine."""
    names = sorted({name for registry in registries for name in registry.targets(here.machine.key)})
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    known = f"; this machine has profiles for: {', '.join(names[:NAMED])}{more}" if names else ""
    return f"no script names the target: write {NAMING}{known}"


def _listed(registry: Registry, path: Path) -> ProfileFile:
    problem = registry.problem(path)
    return ProfileFile(path, None, problem) if problem else _read(path)


def _read(path: Path) -> ProfileFile:
    try:
        return ProfileFile(path, profiles.read(path))
    except ProfileError as error:
        return ProfileFile(path, None, str(error).splitlines()[0])
