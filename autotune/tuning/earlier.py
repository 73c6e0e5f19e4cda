"""What a run takes over from earlier ones, and what it keeps for the training that follows."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autotune.knobs.compile import COMPILED_FOLDER
from autotune.knobs.knob import LEVELS, includes
from autotune.knobs.settings import Settings
from autotune.probes.facts import Inventory
from autotune.probes.system import System
from autotune.profiles import registry
from autotune.profiles.clamp import clamp
from autotune.profiles.match import Here
from autotune.profiles.places import places
from autotune.trial.target import Target

LOCKS = "locks"


@dataclass(frozen=True)
class Earlier:
    """Settings of an earlier profile that fit this machine, by the levels that allow them. They are claims of another
    day: a new run measures and proves them like any others.

    Attributes:
        settings: by level; a new search tries them first.
        notes: what the user should know of them.
    """

    settings: Mapping[str, tuple[Settings, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def earlier_profile(target: Target, inventory: Inventory) -> Earlier:
    """Return the profile of ``target`` that fits this machine best; empty if there is none. Never raises."""
    found = registry.search(Here.on(inventory, target.name), places(os.environ, target.path))
    best = found.match or found.similar
    if best is None:
        return Earlier()
    fitted = {name: clamp(result.settings, inventory)[0] for name, result in best.profile.levels.items()}
    settings = {
        level: tuple(dict.fromkeys(own for name, own in fitted.items() if includes(level, name))) for level in LEVELS
    }
    written = f" of {best.profile.written.date}" if best.profile.written else ""
    return Earlier(settings, (f"the search began with the settings of an earlier profile{written} ({best.verdict})",))


def compile_cache() -> Path | None:
    """Return the folder of compiled code; None if this user has no private folder for it."""
    cache = System().cache_folder()
    return cache / COMPILED_FOLDER if cache is not None else None


def keep_compiled(compiled: Path) -> None:
    """Add what lies in ``compiled`` to the compile cache of the training that follows: its first step then compiles
    nothing. Names are hashes of the content, so nothing is replaced.

    Raises nothing: without it the first step of the training compiles, which is all there is to lose.
    """
    kept = compile_cache()
    if kept is None or not compiled.is_dir():
        return
    try:
        for path in sorted(compiled.rglob("*")):
            place = kept / path.relative_to(compiled)
            if path.is_file() and LOCKS not in path.parts and not place.exists():
                _copy(path, place)
    except OSError:
        return


def _copy(path: Path, place: Path) -> None:
    """Copy a file, under its name only once it is whole: a training may read it meanwhile."""
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = place.with_name(f".{os.getpid()}.{place.name}")
    shutil.copy2(path, partial)
    os.replace(partial, place)
