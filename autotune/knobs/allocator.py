"""Host memory: allocators, which are preloaded at launch or not at all, and thresholds of glibc's own."""

from __future__ import annotations

import ctypes
from pathlib import Path

from autotune.knobs.change import Change, Changed, Refused, Training
from autotune.knobs.choices import Choices, by_reason, unless
from autotune.knobs.knob import SERVER_SECONDS, Context, Effect, Knob, Word

ALLOCATOR_GAIN = {"default": 0.0, "jemalloc": 0.03, "tcmalloc": 0.04}
"""tcmalloc goes first: on the grid of jpeg_folder it gains 28 % (median), where jemalloc loses 24 %."""
ALLOCATORS = tuple(ALLOCATOR_GAIN)
PRELOAD = "LD_PRELOAD"
MAPS = Path("/proc/self/maps")
GLIBC_KEEPS = {"MMAP_THRESHOLD": 2**30, "TRIM_THRESHOLD": 2**31 - 1, "TOP_PAD": 64 * 2**20}
"""``malloc=keep``, by glibc's names: blocks below 1 GiB come from the heap, which grows by 64 MiB and is not given
back. By default each large block is mapped afresh, and the kernel clears its pages again."""
GLIBC_VARIABLES = {f"MALLOC_{name}_": str(size) for name, size in GLIBC_KEEPS.items()}
"""The same for a process that starts with them."""
GLIBC_STARTS_WITH = {"MMAP_THRESHOLD": 128 * 1024, "TRIM_THRESHOLD": 128 * 1024, "TOP_PAD": 0}
"""glibc raises the first two by itself as long as nobody has set them, and not after that."""
GLIBC_RAISES_TO = 2**25
"""glibc raises them by itself up to this and twice this: to the size of the largest mapped block that was freed."""
NUMBERS = {"TRIM_THRESHOLD": -1, "TOP_PAD": -2, "MMAP_THRESHOLD": -3}
"""Parameters of ``mallopt`` (glibc's ``malloc.h``)."""


def _allocator(context: Context) -> Choices:
    if context.cuda:
        return unless("the step's memory is on the GPU", "default", "jemalloc")
    found = {"default", *(allocator.name for allocator in context.inventory.software.allocators)}
    return by_reason({name: None if name in found else "library not installed" for name in ALLOCATORS})


def _why_not_loaded(name: str) -> str | None:
    """Read back: return why this process runs without the library, or None."""
    try:
        mapped = f"lib{name}" in MAPS.read_text(errors="replace")
    except OSError:
        return "cannot tell: this system has no /proc/self/maps"
    return None if mapped else f"lib{name} is not loaded; only autotune run can preload it"


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
    first_seconds={"jemalloc": SERVER_SECONDS, "tcmalloc": SERVER_SECONDS},
    inherited=True,
    start=lambda value, _training: Changed(read=lambda: _why_not_loaded(value)),
    plain=lambda plan: plan.start_with(PRELOAD),
)


def _malloc(context: Context) -> Choices:
    other = context.inventory.software.platform != "linux"
    return unless("only Linux has glibc's allocator" if other else None, "default", "keep")


def _start_malloc(_value: str, _training: Training) -> Change:
    """Set the thresholds in this process; workers that it forks inherit them."""
    if not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        return Refused("this process does not run on glibc")
    refused = _mallopt(GLIBC_KEEPS)
    return Changed(
        lambda: _mallopt(GLIBC_STARTS_WITH), lambda: f"glibc refused {refused[0]} of mallopt" if refused else None
    )


def _mallopt(sizes: dict[str, int]) -> list[str]:
    """Set glibc's parameters; return those that it refuses."""
    glibc = ctypes.CDLL(None)
    return [name for name, size in sizes.items() if glibc.mallopt(NUMBERS[name], size) == 0]


def raise_thresholds() -> None:
    """Free one large block: from then on glibc by default keeps as much freed memory as it ever does.

    A run does so in its first evaluation. A trial has none, and would ask the kernel for memory at each step.
    """
    glibc = ctypes.CDLL(None)
    glibc.malloc.restype, glibc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    glibc.free(glibc.malloc(ctypes.c_size_t(GLIBC_RAISES_TO - 2**16)))


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
    changes_memory=("host",),
    start=_start_malloc,
    plain=lambda plan: plan.start_with(*GLIBC_VARIABLES),
)
