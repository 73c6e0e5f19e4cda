"""One warning where training is clearly slower than the profile promises."""

from __future__ import annotations

import time
from collections.abc import Callable

WARMUP_STEPS = 10
STEPS = 20
TOLERANCE = 1.5


class Pace:
    """Times optimizer steps 11 to 30, then stops looking.

    Args:
        expected: seconds per optimizer step by the profile.
        say: called once, with the warning.
        clock: seconds, monotonic.
    """

    def __init__(
        self, expected: float, say: Callable[[str], None], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.expected, self.say, self.clock = expected, say, clock
        self.steps = 0
        self.started = 0.0

    def tick(self) -> bool:
        """Call after each optimizer step. False once there is nothing more to see."""
        self.steps += 1
        if self.steps == WARMUP_STEPS:
            self.started = self.clock()
        if self.steps < WARMUP_STEPS + STEPS:
            return True
        seconds = (self.clock() - self.started) / STEPS
        if seconds > TOLERANCE * self.expected:
            self.say(
                f"a step takes {seconds * 1e3:.3g} ms, the profile measured {self.expected * 1e3:.3g} ms; "
                "something else may use this machine, or its software changed: autotune check PROFILE measures again"
            )
        return False
