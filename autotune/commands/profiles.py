"""``autotune profiles list`` and ``match``: which profiles there are, and which one fits."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from autotune.core.match import APPLIED, Comparison, Here, compare
from autotune.core.near import did_you_mean
from autotune.core.profile import Profile
from autotune.knobs.clamp import clamp, for_this_machine
from autotune.probes import inventory
from autotune.probes.facts import Inventory
from autotune.report import match as report
from autotune.store import observed, profiles, registry
from autotune.store.folder import LISTED
from autotune.store.places import not_there, places


def list_profiles() -> None:
    """Print every profile, and every file that should be one; of remote registries the copies that are here."""
    found = registry.list_profiles()
    if not found:
        where = " or ".join(registry.registry_at(place).shown for place in places())
        print(f"no profiles in {where}; make one: autotune tune train.py", file=sys.stderr)
    for item in found:
        print(f"{item.path}  {_line(item.profile)}{_seen(item.path, item.profile)}" if item.profile else item.problem)
    if len(found) >= LISTED:
        print(f"at most {LISTED} files of each place are listed", file=sys.stderr)


def match(target: str | None, explain: bool = False) -> bool:
    """Print which profile `autotune.load()` would take here, or how well the file ``target`` fits.

    Returns:
        Whether it would be applied.
    """
    machine = inventory.probe()
    here = Here.on(machine, target)
    if target and target.endswith((".yaml", ".yml")):
        profile = profiles.read(target)
        own = replace(here, target=None, nnodes=profile.target.nnodes)
        return _say(target, profile, compare(profile, own), machine, explain)
    found = registry.search(here)
    best = found.match or found.similar
    if best is None:
        others = set(registry.targets(here)) - {target}
        wanted = f" and {target}{did_you_mean(target, others)}" if target else ""
        print(f"no profile fits {here.machine.key}{wanted}; make one: autotune tune train.py")
    applied = best is not None and _say(best.source, best.profile, best.comparison, machine, explain)
    missing = () if found.match else not_there(os.environ)
    for note in (*found.notes, *missing, *([f"files read: {found.read}"] if explain else [])):
        print(f"  {note}")
    return applied


def _say(source: str, profile: Profile, comparison: Comparison, machine: Inventory, explain: bool) -> bool:
    applied = comparison.verdict in APPLIED
    wanted, grown = for_this_machine(profile, profile.recommended, machine)
    clamped = clamp(wanted, machine)[1] if applied else ()
    print(f"{source} ({comparison.verdict})")
    if explain:
        print(report.text(comparison, clamped))
    else:
        for line in (*filter(None, [comparison.sentence]), *(f"clamped {line}" for line in clamped)):
            print(f"  {line}")
    for line in grown if applied else ():
        print(f"  {line}")
    return applied


def _line(profile: Profile) -> str:
    written = f", {profile.written.date}, torch-autotune {profile.written.tool}" if profile.written else ""
    return f"{profile.target.name} on {profile.key}{written}"


def _seen(path: Path, profile: Profile) -> str:
    """How trainings with the profile went, where they left that."""
    said = observed.summary(observed.read(path), profile.recommended)
    return f", {said}" if said else ""
