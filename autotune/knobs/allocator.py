"""Host memory: allocators, which are preloaded at launch or not at all, and thresholds of glibc's own."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

from autotune.devices import CPU
from autotune.knobs.change import Change, Refused, Training
from autotune.knobs.knob import SERVER_SECONDS, Choices, Chosen, Context, Knob, Start, Variables, Word, unless

ALLOCATOR_GAIN = {"default": 0.0, "jemalloc": 0.03, "tcmalloc": 0.04}
"""tcmalloc goes first: on the grid of jpeg_folder it gains 28 % (median), and jemalloc loses 24 %."""
ALLOCATORS = tuple(ALLOCATOR_GAIN)
PRELOAD = "LD_PRELOAD"
LIBRARIES = re.compile(r"(jemalloc|tcmalloc|mimalloc)")
MAPS = Path("/proc/self/maps")
GLIBC_KEEPS = {"MMAP_THRESHOLD": 2**30, "TRIM_THRESHOLD": 2**31 - 1, "TOP_PAD": 64 * 2**20}
"""``malloc=keep``, by glibc's names: blocks below 1 GiB come from the heap, which grows by 64 MiB and is not given
back. By default each large block is mapped afresh, and the kernel clears its pages again."""
GLIBC_VARIABLES = {f"MALLOC_{name}_": str(size) for name, size in GLIBC_KEEPS.items()}
"""The same for a process that starts with them."""
GLIBC_STARTS_WITH = {"MMAP_THRESHOLD": 128 * 1024, "TRIM_THRESHOLD": 128 * 1024, "TOP_PAD": 0}
"""glibc raises the first two by itself, until one of them is set."""
GLIBC_RAISES_TO = 2**25 - 2**16
"""glibc raises them by itself up to this and twice this: to the size of the largest mapped block that was freed."""
PRECISELY, MOST_FREE_BLOCKS = 2**16, 1024
"""Bytes to which `mmap_threshold` is known; blocks that may be found free on the heap."""
NO_GLIBC = "only Linux has glibc's allocator"
NUMBERS = {"TRIM_THRESHOLD": -1, "TOP_PAD": -2, "MMAP_THRESHOLD": -3}
"""Parameters of ``mallopt`` (glibc's ``malloc.h``)."""


def _allocator(context: Context) -> Choices:
    found = {"default", *(allocator.name for allocator in context.inventory.software.allocators)}
    return {name: None if name in found else "library not installed" for name in ALLOCATORS}


def _preloaded(settings: Chosen, start: Start) -> Variables:
    """Return the library behind those that the user preloads, unless an allocator is among them."""
    own, name = start.own.get(PRELOAD, ""), settings.allocator
    if LIBRARIES.search(own):
        return Variables(kept={} if name in own else {PRELOAD: name})
    if name == "default":
        return Variables()
    # A profile holds a word, never a path: the probes find the library, of those that only root can change.
    libraries = {each.name: each.library for each in start.inventory.software.allocators}
    if name not in libraries:
        return Variables(why_not=f"{name} is not installed here")
    return Variables({PRELOAD: ":".join(filter(None, (own, libraries[name])))})


def _why_not_loaded(name: str) -> str | None:
    """Read back: return why this process runs without the library, or None."""
    try:
        mapped = f"lib{name}" in MAPS.read_text(errors="replace")
    except OSError:
        return "cannot tell: this system has no /proc/self/maps"
    return None if mapped else f"lib{name} is not loaded; only autotune run can preload it"


ALLOCATOR = Knob(
    name="allocator",
    live=False,
    words="{} allocator",
    kind=Word(ALLOCATORS),
    neutral="default",
    applied="launch",
    choices=_allocator,
    devices=(CPU,),
    why={
        "jemalloc": "host memory is kept for reuse",
        "tcmalloc": "host memory is kept for reuse",
        "default": "the system's allocator is fastest",
    },
    spread=0.06,
    gain=lambda settings, _context: ALLOCATOR_GAIN[settings.allocator],
    first_seconds={"jemalloc": SERVER_SECONDS, "tcmalloc": SERVER_SECONDS},
    variables=_preloaded,
    inherited=True,
    start=lambda value, _training: Change(read=lambda: _why_not_loaded(value)),
    plain=lambda plan: plan.start_with(PRELOAD),
)


def _start_malloc(_value: str, _training: Training) -> Change:
    """Set the thresholds in this process; workers that it forks inherit them."""
    if not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        return Refused("this process does not run on glibc")
    refused = _mallopt(GLIBC_KEEPS)
    return Change(
        lambda: _mallopt(GLIBC_STARTS_WITH), lambda: f"glibc refused {refused[0]} of mallopt" if refused else None
    )


def _mallopt(sizes: dict[str, int]) -> list[str]:
    """Set glibc's parameters; return those that it refuses."""
    glibc = ctypes.CDLL(None)
    return [name for name, size in sizes.items() if glibc.mallopt(NUMBERS[name], size) == 0]


class _Statistics(ctypes.Structure):
    """``mallinfo2`` of glibc's ``malloc.h``."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    )


def mmap_threshold() -> int:
    """Return the bytes up to which glibc takes blocks from the heap, and keeps them when they are freed.

    This takes address space that is not given back: call it in a process that ends soon.
    """
    low, high = 0, GLIBC_RAISES_TO
    while high - low > PRECISELY:
        middle = (low + high) // 2
        mapped = _allocate(middle)[1]
        low, high = (low, middle) if mapped else (middle, high)
    return low


def raise_mmap_threshold(size: int) -> None:
    """Let glibc keep freed blocks up to ``size`` bytes, as if the process had freed one; never less."""
    blocks, _ = _allocate(size)
    for block in blocks:
        ctypes.CDLL(None).free(ctypes.c_void_p(block))


def give_back_free_memory() -> None:
    """Give the kernel what the heap holds for nothing, where glibc can."""
    glibc = ctypes.CDLL(None)
    if hasattr(glibc, "malloc_trim"):
        glibc.malloc_trim(0)


def _allocate(size: int) -> tuple[list[int], bool]:
    """Allocate blocks until glibc asks the kernel for memory. Return them, and True if the last is mapped by itself."""
    glibc = ctypes.CDLL(None)
    glibc.malloc.restype = ctypes.c_void_p
    if not hasattr(glibc, "mallinfo2"):  # another library, or one before 2.33
        return [glibc.malloc(ctypes.c_size_t(size))], False
    glibc.mallinfo2.restype = _Statistics
    before, blocks = glibc.mallinfo2(), list[int]()
    for _ in range(MOST_FREE_BLOCKS):
        blocks.append(glibc.malloc(ctypes.c_size_t(size)))
        now = glibc.mallinfo2()
        if (now.hblks, now.arena) != (before.hblks, before.arena):
            return blocks, now.hblks > before.hblks
        if now.uordblks == before.uordblks:  # another library is preloaded: none of these is glibc's
            break
    return blocks, False


MALLOC = Knob(
    name="malloc",
    kind=Word(("default", "keep")),
    neutral="default",
    choices=lambda context: unless(
        None if context.inventory.software.platform == "linux" else NO_GLIBC, "default", "keep"
    ),
    devices=(CPU,),
    applies=lambda settings: settings.allocator == "default",
    why={"keep": "freed memory is kept for reuse", "default": "giving memory back is faster here"},
    spread=0.10,
    gain=lambda settings, _context: 0.02 * (settings.malloc == "keep"),
    changes_memory=True,
    variables=lambda settings, start: Variables(
        GLIBC_VARIABLES if start.plain and settings.malloc == "keep" else {}  # else the process sets them itself
    ),
    start=_start_malloc,
    plain=lambda plan: plan.start_with(*GLIBC_VARIABLES),
)
