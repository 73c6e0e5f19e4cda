"""Finds the library of an allocator that a profile names.

A profile holds a word, ``jemalloc`` or ``tcmalloc``, never a path: what is preloaded runs inside the user's training.
The word picks a library that the probes found; its file must lie in a system folder, belong to root, and be
writable by nobody else, all folders above it included.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from probes.facts import Inventory

SYSTEM_FOLDERS: tuple[Path, ...] = tuple(
    Path(folder)
    for folder in (
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib/powerpc64le-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/lib64",
        "/lib",
        "/usr/local/lib64",
        "/usr/local/lib",
    )
)
_LIBRARY = re.compile(r"lib(jemalloc|tcmalloc)[A-Za-z0-9_]*\.so(\.[0-9]+)*")
_ANY = re.compile(r"(jemalloc|tcmalloc|mimalloc)")


@dataclass(frozen=True)
class Preload:
    """What becomes of ``LD_PRELOAD``.

    Attributes:
        value: the variable's new value; None leaves it alone.
        yours: the user's own value where it already holds an allocator.
        reason: why the wanted allocator is not used; empty where it is, or where none is wanted.
    """

    value: str | None = None
    yours: str = ""
    reason: str = ""


def preload(name: str, inventory: Inventory, present: str, folders: tuple[Path, ...] = SYSTEM_FOLDERS) -> Preload:
    """``LD_PRELOAD`` for allocator ``name``, keeping whatever is ``present`` in it."""
    if _ANY.search(present):
        return Preload() if name in present else Preload(yours=present)
    if name == "default":
        return Preload()
    if inventory.software.platform != "linux":
        return Preload(reason=f"{name} is preloaded on Linux only")
    path, reason = find(name, inventory, folders)
    if path is None:
        return Preload(reason=reason)
    return Preload(value=":".join(part for part in (present, str(path)) if part))


def find(name: str, inventory: Inventory, folders: tuple[Path, ...] = SYSTEM_FOLDERS) -> tuple[Path | None, str]:
    """The library file of allocator ``name``, or None and why."""
    libraries = [item.library for item in inventory.software.allocators if item.name == name]
    reason = f"{name} is not installed here"
    for library in libraries:
        matched = _LIBRARY.fullmatch(library)
        if matched is None or matched[1] != name:
            reason = f"{library!r} is not the name of a {name} library"
            continue
        for folder in folders:
            path = folder / library
            if path.is_file():
                if trusted(path):
                    return path, ""
                reason = f"{path} could be changed by users other than root"
    return None, reason


def trusted(path: Path) -> bool:
    """True where only root can change the file ``path`` or replace it: owner and mode of it and every folder above."""
    try:
        real = path.resolve(strict=True)
        chain = [real, *real.parents, *path.absolute().parents]
        return all(_only_root_writes(os.stat(part)) for part in dict.fromkeys(chain))
    except OSError:
        return False


def _only_root_writes(found: os.stat_result) -> bool:
    shared = stat.S_IWOTH | (stat.S_IWGRP if found.st_gid != 0 else 0)
    return found.st_uid == 0 and not found.st_mode & shared
