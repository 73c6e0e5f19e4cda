"""The rate of a whole training, kept beside its profile where the user wants that."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

from autotune.runtime.pace import STEPS, WARMUP_STEPS
from autotune.store.observed import Observed, append

LEAST_WINDOWS = 5
"""Shorter trainings say nothing."""
MOST_WINDOWS = 10_000


class RateObserver:
    """Takes the median of windows of optimizer steps: pauses for evaluations and checkpoints are in few of them.

    Args:
        profile: the file.
        level: that is applied.
        step_seconds: what a step should take.
        clock: seconds, monotonic.
    """

    def __init__(
        self, profile: Path, level: str, step_seconds: float, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.profile, self.level, self.step_seconds, self.clock = profile, level, step_seconds, clock
        self._steps, self._since = -WARMUP_STEPS, 0.0
        self._windows: list[float] = []

    def tick(self) -> bool:
        """Call after each optimizer step. False once enough is known."""
        self._steps += 1
        if self._steps >= 0 and self._steps % STEPS == 0:
            now = self.clock()
            if self._steps:
                self._windows.append(now - self._since)
            self._since = now
        return len(self._windows) < MOST_WINDOWS

    def keep(self) -> None:
        """Write what was seen, once. Never raises: training is over, and its end is the user's."""
        windows, self._windows = self._windows, []
        if len(windows) < LEAST_WINDOWS:
            return
        share = self.step_seconds * STEPS / max(statistics.median(windows), 1e-9)
        day = time.strftime("%Y-%m-%d", time.gmtime())
        try:
            append(self.profile, Observed(day, self.level, len(windows) * STEPS, round(share, 3)))
        except OSError:
            return
