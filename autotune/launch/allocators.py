"""`LD_PRELOAD` for the allocator that a profile names.

A profile holds a word, ``jemalloc`` or ``tcmalloc``, never a path. The library is the one that the probes of this
machine found; they list only libraries that nobody but root can change.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from autotune.probes.facts import Inventory

_ALLOCATOR = re.compile(r"(jemalloc|tcmalloc|mimalloc)")


@dataclass(frozen=True)
class Preload:
    """What becomes of ``LD_PRELOAD``.

    Attributes:
        value: the variable's new value; None leaves it alone.
        users: the user's own value where it already holds another allocator.
        reason: why the wanted allocator is not used; empty where it is used, or where none is wanted.
    """

    value: str | None = None
    users: str = ""
    reason: str = ""


def preload(name: str, inventory: Inventory, present: str) -> Preload:
    """``LD_PRELOAD`` for allocator ``name``. What is ``present`` in it stays."""
    if _ALLOCATOR.search(present):
        return Preload() if name in present else Preload(users=present)
    if name == "default":
        return Preload()
    if inventory.software.platform != "linux":
        return Preload(reason=f"{name} is preloaded on Linux only")
    library = next((found.library for found in inventory.software.allocators if found.name == name), None)
    if library is None:
        return Preload(reason=f"{name} is not installed here")
    return Preload(value=":".join(part for part in (present, library) if part))
