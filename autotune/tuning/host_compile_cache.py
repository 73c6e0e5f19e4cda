"""What trials have compiled, kept for the training that follows: its first step then compiles nothing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from autotune.knobs.compile import COMPILED_FOLDER
from autotune.probes.system import System

LOCKS = "locks"


def folder() -> Path | None:
    """Where compiled code is kept; None where this user has no private folder for it."""
    cache = System().cache_folder()
    return cache / COMPILED_FOLDER if cache is not None else None


def keep(compiled: Path) -> None:
    """Add what lies in ``compiled`` to what is kept. Names are hashes of the content, so nothing is replaced.

    Nothing is raised: without it the first step of the training compiles, which is all there is to lose.
    """
    kept = folder()
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
    """Under its name only once it is whole: a training may read it meanwhile."""
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = place.with_name(f".{os.getpid()}.{place.name}")
    shutil.copy2(path, partial)
    os.replace(partial, place)
