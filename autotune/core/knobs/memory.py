"""Knobs of host memory."""

from __future__ import annotations

from autotune.core.knobs.knob import SERVER_SECONDS, Choices, Context, Effect, Knob, Word

ALLOCATOR_GAIN = {"default": 0.0, "jemalloc": 0.03, "tcmalloc": 0.04}
"""tcmalloc goes first: on the grid of jpeg_folder it gains 28 % (median), where jemalloc loses 24 %."""
ALLOCATORS = tuple(ALLOCATOR_GAIN)
GLIBC_KEEPS = {"MMAP_THRESHOLD": 2**30, "TRIM_THRESHOLD": 2**31 - 1, "TOP_PAD": 64 * 2**20}
"""``malloc=keep``, by glibc's names: blocks below 1 GiB come from the heap, which grows by 64 MiB and is not given
back. By default each large block is mapped afresh, and the kernel clears its pages again."""


def _allocator(context: Context) -> Choices:
    found = {allocator.name for allocator in context.inventory.software.allocators}
    if context.cuda:
        return Choices(("default",), (("jemalloc", "the step's memory is on the GPU"),))
    missing = tuple((name, "library not installed") for name in ALLOCATORS[1:] if name not in found)
    return Choices(tuple(name for name in ALLOCATORS if name == "default" or name in found), missing)


ALLOCATOR = Knob(
    name="allocator",
    what="host memory allocator",
    words="{} allocator",
    offered="default, jemalloc, tcmalloc, where installed; CPU training only",
    kind=Word(ALLOCATORS),
    neutral="default",
    applied="launch",
    choices=_allocator,
    why={
        "jemalloc": "host memory is kept for reuse",
        "tcmalloc": "host memory is kept for reuse",
        "default": "the system's allocator is fastest",
    },
    effect=Effect(0.06),
    gain=lambda settings, _context: ALLOCATOR_GAIN[settings.allocator],
    acts_on=("compute", "load"),
    first_seconds={"jemalloc": SERVER_SECONDS, "tcmalloc": SERVER_SECONDS},
    inherited=True,
    applier="allocator:Allocator",
)


def _malloc(context: Context) -> Choices:
    if context.inventory.software.platform != "linux":
        return Choices(("default",), (("keep", "only Linux has glibc's allocator"),))
    return Choices(("default", "keep"))


MALLOC = Knob(
    name="malloc",
    what="what glibc's allocator does with freed memory",
    offered="default, keep (large blocks are reused, not given back to the kernel), on Linux; CPU training only",
    kind=Word(("default", "keep")),
    neutral="default",
    choices=_malloc,
    devices=("cpu",),
    applies=lambda settings: settings.allocator == "default",
    why={"keep": "freed memory is kept for reuse", "default": "giving memory back is faster here"},
    effect=Effect(0.10),
    gain=lambda settings, _context: 0.02 * (settings.malloc == "keep"),
    acts_on=("compute", "load"),
    changes_memory=("host",),
    applier="malloc:Malloc",
    added_later=True,
)
