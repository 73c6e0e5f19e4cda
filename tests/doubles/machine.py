"""A machine with both allocators, for the launcher's tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autotune.probes.facts import Allocator, Inventory
from benchmarks.simulation import simulator

LIBRARIES = (
    Allocator("jemalloc", "/usr/lib/libjemalloc.so.2"),
    Allocator("tcmalloc", "/usr/lib/libtcmalloc_minimal.so.4"),
)


def inventory(**changes: Any) -> Inventory:
    """Eight CPUs, jemalloc and tcmalloc."""
    plain = simulator.inventory(8, 8)
    values: dict[str, Any] = {"software": replace(plain.software, allocators=LIBRARIES)}
    return replace(plain, **{**values, **changes})
