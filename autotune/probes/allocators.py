"""Memory allocators that can be preloaded: jemalloc and tcmalloc.

A preloaded library runs inside the user's training. It is listed only if it lies in a system folder and nobody but
root can change or replace it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from autotune.probes.facts import Allocator
from autotune.probes.system import System

_FOLDERS = (
    *(f"{top}/{arch}-linux-gnu" for arch in ("x86_64", "aarch64", "powerpc64le") for top in ("/usr/lib", "/lib")),
    "/usr/lib64",
    "/usr/lib",
    "/lib64",
    "/lib",
    "/usr/local/lib64",
    "/usr/local/lib",
)
_STEMS = {"jemalloc": ("libjemalloc",), "tcmalloc": ("libtcmalloc", "libtcmalloc_minimal")}


def probe(system: System) -> tuple[Allocator, ...]:
    """One library of each allocator, where there is one."""
    found = ((name, _library(system, stems)) for name, stems in _STEMS.items())
    return tuple(Allocator(name, path) for name, path in found if path)


def only_root_can_change(system: System, path: str) -> bool:
    """Whether only root can write the file and every folder above it; for a link also those of its target."""
    real = PurePosixPath(system.resolve(path))
    link = PurePosixPath(path)
    stats = [system.stat(str(each)) for each in dict.fromkeys((real, *real.parents, link, *link.parents))]
    return all(found is not None and found.only_root_writes for found in stats)


def _library(system: System, stems: Iterable[str]) -> str | None:
    """The path of the first library that is safe to preload; in a folder the last name comes first."""
    for stem in stems:
        for folder in _FOLDERS:
            names = [name for name in system.list(folder) if re.fullmatch(rf"{stem}\.so(\.\d+)*", name)]
            safe = (f"{folder}/{n}" for n in reversed(names) if only_root_can_change(system, f"{folder}/{n}"))
            if path := next(safe, None):
                return path
    return None
