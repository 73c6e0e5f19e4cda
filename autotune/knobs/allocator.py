"""Host memory allocators, which are preloaded at launch or not at all."""

from __future__ import annotations

from pathlib import Path

from autotune.knobs.exported import Missing, Plan, Said, before_python, in_environment, in_shells
from autotune.knobs.knob import SERVER_SECONDS, Change, Choices, Context, Effect, Knob, Training, Word

ALLOCATOR_GAIN = {"default": 0.0, "jemalloc": 0.03, "tcmalloc": 0.04}
"""tcmalloc goes first: on the grid of jpeg_folder it gains 28 % (median), where jemalloc loses 24 %."""
ALLOCATORS = tuple(ALLOCATOR_GAIN)
PRELOAD = "LD_PRELOAD"
MAPS = Path("/proc/self/maps")


def _allocator(context: Context) -> Choices:
    found = {allocator.name for allocator in context.inventory.software.allocators}
    if context.cuda:
        return Choices(("default",), (("jemalloc", "the step's memory is on the GPU"),))
    missing = tuple((name, "library not installed") for name in ALLOCATORS[1:] if name not in found)
    return Choices(tuple(name for name in ALLOCATORS if name == "default" or name in found), missing)


class _Preloaded(Change):
    def __init__(self, name: str) -> None:
        self._name = name

    def why_not(self) -> str | None:
        """Return why this process runs without it, or None."""
        try:
            mapped = f"lib{self._name}" in MAPS.read_text(errors="replace")
        except OSError:
            return "cannot tell: this system has no /proc/self/maps"
        return None if mapped else f"lib{self._name} is not loaded; only autotune run can preload it"


def _start(value: str, _training: Training) -> Change | None:
    return None if value == "default" else _Preloaded(value)


def _preload(plan: Plan) -> Said:
    """Return the library, or why it cannot be preloaded."""
    reason = plan.missing.get("allocator")
    return (Missing(reason),) if reason else in_environment(PRELOAD)(plan)


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
    start=_start,
    plain=lambda plan: plan.missing.get("allocator") or f"start with {before_python(plan, PRELOAD)}",
    export=in_shells(_preload),
)
