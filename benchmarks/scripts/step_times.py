"""A stopwatch for training steps, as training scripts carry one."""

from __future__ import annotations

import json
import time


class StepTimes:
    """Seconds of each step. The first ``skip`` steps count as the start.

    Attributes:
        seconds: of each step so far.
        started: wall-clock time (``time.time()``) at which the first ``skip`` steps were over.
    """

    def __init__(self, skip: int = 5) -> None:
        self.seconds: list[float] = []
        self.skip, self.started, self._last = skip, 0.0, 0.0

    def begin(self) -> None:
        """Start the clock: call it before the first step, and after what is no part of a step."""
        self._last = time.perf_counter()

    def step(self) -> None:
        """End a step; the next one begins."""
        now = time.perf_counter()
        self.seconds.append(now - self._last)
        self._last = now
        if len(self.seconds) == self.skip:
            self.started = time.time()

    def print_summary(self) -> None:
        """Print one line of JSON: the seconds of each step, and when the start was over."""
        kept = self.seconds[self.skip :] or self.seconds
        print(json.dumps({"steps": [round(seconds, 6) for seconds in kept], "started": self.started}), flush=True)
