"""The steps before a measurement: until caches, clocks and the loader's queue are in a steady state."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from autotune.stats.measurement import (
    MIN_WARMUP_SECONDS,
    MIN_WARMUP_STEPS,
    SLOW_STEP_SECONDS,
    STEADY_BLOCKS,
    is_steady,
)
from autotune.trial.child.measured_loop import MeasuredLoop, Steps
from autotune.trial.spec import TrialSpec

BLOCK_SECONDS = 0.04
HOPELESS = 2.0
"""Steps this many times too slow for the bar end the warm-up at once."""


@dataclass(frozen=True)
class WarmUp:
    """What a warm-up took, and whether it ended in a steady state."""

    seconds: float
    steps: int
    steady: bool
    first_step_seconds: float = 0.0
    """The step before it, with everything that torch and the loader do once."""

    @property
    def pace(self) -> float:
        """Seconds of a step."""
        return self.seconds / max(1, self.steps)


def warm_up(loop: MeasuredLoop) -> Steps[WarmUp]:
    """Step until steady, clearly lost, or out of time."""
    started = time.perf_counter()
    paces: list[float] = []
    steps = 0
    while True:
        seconds = time.perf_counter() - started
        steady = _is_primed(loop, steps, seconds) and _is_steady(paces)
        over = steady or _is_out_of_time(loop.spec, steps, seconds) or _is_lost(loop, paces)
        count = loop.agree(0 if over else _steps_of_block(paces))
        if count == 0:
            return WarmUp(seconds, steps, steady)
        paces.append((yield from loop.timed(count)) / count)
        steps += count


def _is_primed(loop: MeasuredLoop, steps: int, seconds: float) -> bool:
    """The loader's first queue is consumed and torch's first-step work is over."""
    settings = loop.spec.settings
    queue = settings.num_workers * ((settings.prefetch_factor or 0) + 1)
    return steps >= MIN_WARMUP_STEPS and seconds >= MIN_WARMUP_SECONDS and loop.batches >= queue


def _is_steady(paces: list[float]) -> bool:
    """The last blocks agree with those before; fewer blocks are compared where a step takes long."""
    slow = bool(paces) and paces[-1] >= SLOW_STEP_SECONDS
    return is_steady(paces, STEADY_BLOCKS - slow)


def _is_out_of_time(spec: TrialSpec, steps: int, seconds: float) -> bool:
    """The cap is reached. A resident's slow steps need few, since its settings were measured before."""
    slow = seconds / max(1, steps) > SLOW_STEP_SECONDS
    return seconds >= spec.warmup_seconds and steps >= (1 if slow and spec.resident else MIN_WARMUP_STEPS)


def _is_lost(loop: MeasuredLoop, paces: list[float]) -> bool:
    """Two steps in a row are far below the bar already: no warm-up makes up for that."""
    if loop.spec.give_up_below <= 0 or len(paces) < 2:
        return False
    bar = loop.step_items * loop.session.world_size / loop.spec.give_up_below
    return min(paces[-2:]) > HOPELESS * bar


def _steps_of_block(paces: list[float]) -> int:
    """As many as fill a block at the latest pace; one where none is known."""
    return max(1, math.ceil(BLOCK_SECONDS / paces[-1])) if paces and paces[-1] else 1
