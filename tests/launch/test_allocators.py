"""What becomes of LD_PRELOAD."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.launch.allocators import Preload, preload

from .records import inventory

JEMALLOC, TCMALLOC = (found.library for found in inventory().software.allocators)


@pytest.mark.parametrize(
    ("name", "present", "result"),
    [
        ("default", "", Preload()),
        ("default", "/opt/libjemalloc.so", Preload(users="/opt/libjemalloc.so")),
        ("jemalloc", "", Preload(JEMALLOC)),
        ("tcmalloc", "", Preload(TCMALLOC)),
        ("jemalloc", "/opt/libmine.so", Preload(f"/opt/libmine.so:{JEMALLOC}")),
        ("jemalloc", "/opt/libjemalloc.so", Preload()),
        ("jemalloc", "/opt/libtcmalloc.so", Preload(users="/opt/libtcmalloc.so")),
    ],
)
def test_what_is_preloaded_already_stays(name: str, present: str, result: Preload) -> None:
    assert preload(name, inventory(), present) == result


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"platform": "darwin"}, "jemalloc is preloaded on Linux only"),
        ({"allocators": ()}, "jemalloc is not installed here"),
    ],
)
def test_an_allocator_that_cannot_be_preloaded_is_named_with_the_reason(change: dict, reason: str) -> None:
    here = inventory()
    here = replace(here, software=replace(here.software, **change))
    assert preload("jemalloc", here, "") == Preload(reason=reason)
