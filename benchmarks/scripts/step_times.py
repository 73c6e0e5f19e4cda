"""A stopwatch for training steps, as training scripts carry one."""

from __future__ import annotations

import json
import os
import threading
import time

if "IDLE_THREAD" in os.environ:  # as a logger has one: the process cannot be forked any more
    threading.Thread(target=threading.Event().wait, daemon=True).start()


class StepTimes:
    """When each step began and ended, by ``time.time()``.

    Attributes:
        steps: pairs of moments.
    """

    def __init__(self) -> None:
        self.steps: list[tuple[float, float]] = []
        self._begun = 0.0

    def begin(self) -> None:
        """Start the clock: call it before the first step, and after what is no part of a step."""
        self._begun = time.time()

    def step(self) -> None:
        """End a step; the next one begins."""
        now = time.time()
        self.steps.append((self._begun, now))
        self._begun = now

    def print_summary(self) -> None:
        """Print one line of JSON: the steps."""
        print(json.dumps({"steps": self.steps}), flush=True)
