"""Finds the profile that fits here, and brings profiles into registries and back. Nothing here prints or asks."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.errors import NothingUsable, ProfileError, UsageError
from autotune.near import did_you_mean
from autotune.probes import inventory
from autotune.profiles import file, registry
from autotune.profiles.clamp import clamp, for_this_machine
from autotune.profiles.format import Profile
from autotune.profiles.match import Here, compare
from autotune.profiles.places import (
    SUFFIX,
    VARIABLE,
    Place,
    default_path,
    file_name,
    is_url,
    missing_folders,
    named_places,
    not_there,
    place,
    places,
    safe_name,
    target_of,
    user_folder,
)
from autotune.profiles.registry import Lookup, Match, Registry


def listings() -> Iterator[tuple[str, Profile | str | ProfileError]]:
    """Yield where each profile is and the profile, or the error if it cannot be read; the nearest place first.

    Profiles at URLs are not read: their targets stand there. A place that cannot be listed has no ``where``.
    """
    for there in map(Registry, places()):
        try:
            for name in there.names():
                where = there.source(name)
                yield where, target_of(name) if there.url else _read(there.path(name))
        except ProfileError as error:
            yield "", error


def _read(path: Path) -> Profile | ProfileError:
    try:
        return file.read(path)
    except ProfileError as error:
        return error


def fit(target: str | None) -> Lookup:
    """Return the profile that `autotune.load()` would take here, or how well the file ``target`` fits.

    Notes have a line for each knob of which this machine bears less, or takes more.
    """
    machine = inventory.probe()
    if target and target.endswith((SUFFIX, ".yml")):
        named = file.read(target)
        found = Lookup(Match(named, compare(named, Here.on(machine)), target))
    else:
        here = Here.on(machine, target)
        found = registry.search(here)
        if found.match is None:
            found = replace(found, notes=(*found.notes, *not_there(os.environ)))
        if found.best is None:
            others = set(registry.targets(here)) - {target}
            asked = f" and {target}{did_you_mean(target, others)}" if target else ""
            nothing = f"no profile fits {here.machine.key}{asked}; make one: autotune tune train.py"
            return replace(found, notes=(nothing, *found.notes))
    if found.match is None:
        return found
    profile = found.match.profile
    wanted, grown = for_this_machine(profile, profile.recommended, machine)
    clamped = (f"clamped {line}" for line in clamp(wanted, machine)[1])
    return replace(found, notes=(*clamped, *grown, *found.notes))


def push(path: Path, to: str | None, replacing: bool) -> tuple[str, bool]:
    """Copy a profile into a registry. Returns where it is now, and whether it was there already.

    Args:
        path: the profile.
        to: a folder or URL; the first entry of ``AUTOTUNE_PROFILES`` if None.
        replacing: take the place of another profile of the same machine and target.

    Raises:
        UsageError: no registry, another is there, or the profile is of an interrupted run or a busy machine, or has an
            impossible gain.
        ProfileError: no valid profile, or the registry cannot be read or written.
    """
    profile = file.read(path)
    if profile.evidence.partial:
        raise UsageError(f"{path}: comes from an interrupted run and nothing in it is proven: tune again")
    if profile.evidence.busy:
        raise UsageError(
            f"{path}: was measured on a busy machine: tune again when nothing else runs (--wait-quiet 10m)"
        )
    if impossible := profile.impossible():
        gain = f"{profile.levels[impossible[0]].speedup.value:.0f}x"
        raise UsageError(f"{path}: {gain} ({impossible[0]}) is not possible there: tune again when nothing else runs")
    own = file_name(profile.target.name)
    name, text, there = f"{safe_name(profile.key)}/{own}", file.dump(profile, own), Registry(_registries(to, "--to")[0])
    there.check_writable()
    before = there.read(name)
    if before == text.encode():
        return there.source(name), True
    if before is not None and not replacing:
        raise UsageError(f"{there.source(name)}: another is there. Compare them (autotune diff), or give --replace")
    there.write(name, text)
    return there.source(name), False


@dataclass(frozen=True)
class Offer:
    """A profile that may be pulled.

    Attributes:
        profile: as it is in the registry.
        source: where it comes from.
        digest: its sha256, in hexadecimal digits.
        path: where it will be written.
        notes: what to say about it.
    """

    profile: Profile
    source: str
    digest: str
    path: Path
    notes: tuple[str, ...] = ()


def offer(what: str | None, source: str | None, to: Path | None, sha256: str | None) -> Offer:
    """Return the profile that ``what`` names in a registry; nothing is written.

    Args:
        what: the target's name, or the URL of one profile.
        source: a folder or URL; all entries of ``AUTOTUNE_PROFILES`` if None.
        to: the folder to write to; the user's own if None.
        sha256: what the file must have, in hexadecimal digits.

    Raises:
        UsageError: no such registry, or the digest differs.
        NothingUsable: no profile fits.
        ProfileError: no valid profile.
    """
    notes: tuple[str, ...] = ()
    if what and is_url(what):
        content, shown = registry.read_url(what), registry.shown(what)
        if content is None:
            raise UsageError(f"{shown}: no such file")
    else:
        content, shown, notes = _best(what, source)
    digest = hashlib.sha256(content).hexdigest()
    if sha256 is not None and sha256.lower() != digest:
        raise UsageError(f"{shown}: has the sha256 {digest}, not {sha256[:80]}: nothing was written")
    profile = file.parse(content, shown)
    path = default_path(profile.key, profile.target.name, to or user_folder())
    return Offer(profile, shown, digest, path, notes)


def _registries(text: str | None, option: str) -> tuple[Place, ...]:
    """Return the registry ``text``; all that the environment names if None; an empty ``text`` names none."""
    found = named_places(os.environ) if text is None else (place(text),) if text.strip() else ()
    if not found:
        raise UsageError(f"no registry: give {option} FOLDER-OR-URL, or set {VARIABLE}")
    return found


def _best(target: str | None, source: str | None) -> tuple[bytes, str, tuple[str, ...]]:
    """Return the profile that fits best, where it comes from, and what to say about it."""
    if target is None:
        raise UsageError("name the target, or the URL of a profile: autotune profiles pull train")
    roots = _registries(source, "--from")
    missing = [f"{folder}: no such folder" for folder in missing_folders(roots)]
    if len(missing) == len(roots):
        raise UsageError("; ".join(missing))
    here = Here.on(inventory.probe(), target)
    found = registry.search(here, roots)
    best, notes = found.best, (*missing, *found.notes)
    if best is None:
        raise NothingUsable("; ".join([f"no profile of {target} fits {here.machine.key}", *notes]))
    return best.content, best.source, (*filter(None, [best.comparison.sentence]), *notes)
