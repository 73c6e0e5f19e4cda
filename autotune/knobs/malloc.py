"""Thresholds of glibc's allocator, set in the running process: workers that it forks inherit them."""

from __future__ import annotations

import ctypes

from autotune.knobs.exported import before_python, in_environment, in_shells
from autotune.knobs.knob import Change, Choices, Context, Effect, Knob, Refused, Training, Word

GLIBC_KEEPS = {"MMAP_THRESHOLD": 2**30, "TRIM_THRESHOLD": 2**31 - 1, "TOP_PAD": 64 * 2**20}
"""``malloc=keep``, by glibc's names: blocks below 1 GiB come from the heap, which grows by 64 MiB and is not given
back. By default each large block is mapped afresh, and the kernel clears its pages again."""
GLIBC_VARIABLES = {f"MALLOC_{name}_": str(size) for name, size in GLIBC_KEEPS.items()}
"""The same for a process that starts with them."""
NUMBERS = {"TRIM_THRESHOLD": -1, "TOP_PAD": -2, "MMAP_THRESHOLD": -3}
"""Parameters of ``mallopt`` (glibc's ``malloc.h``)."""
GLIBC_STARTS_WITH = {"MMAP_THRESHOLD": 128 * 1024, "TRIM_THRESHOLD": 128 * 1024, "TOP_PAD": 0}
"""glibc raises the first two by itself as long as nobody has set them."""


def _malloc(context: Context) -> Choices:
    if context.inventory.software.platform != "linux":
        return Choices(("default",), (("keep", "only Linux has glibc's allocator"),))
    return Choices(("default", "keep"))


class _Kept(Change):
    def __init__(self) -> None:
        refused = [name for name, size in GLIBC_KEEPS.items() if _set(name, size) == 0]
        self._refused = f"glibc refused {refused[0]} of mallopt" if refused else None

    def why_not(self) -> str | None:
        """Return what glibc refused, or None."""
        return self._refused

    def undo(self) -> None:
        """Set the values that glibc starts with. It no longer changes them by itself."""
        for name, size in GLIBC_STARTS_WITH.items():
            _set(name, size)


def _set(name: str, size: int) -> int:
    return int(ctypes.CDLL(None).mallopt(NUMBERS[name], size))


def _start(value: str, _training: Training) -> Change | None:
    if value == "default":
        return None
    if not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        return Refused("this process does not run on glibc")
    return _Kept()


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
    start=_start,
    plain=lambda plan: f"start with {before_python(plan, *GLIBC_VARIABLES)}",
    export=in_shells(in_environment(*GLIBC_VARIABLES)),
)
