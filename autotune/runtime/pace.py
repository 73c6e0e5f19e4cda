"""One warning where training is clearly slower than the profile promises."""

from __future__ import annotations

import time
from collections.abc import Callable

WARMUP_STEPS = 10
STEPS = 20
"""Optimizer steps of one window."""
TOLERANCE = 1.5


def in_steps(rate: float, expected: float) -> str:
    """The warning where rates are optimizer steps per second."""
    return (
        f"a step takes {1e3 / rate:.3g} ms, the profile measured {1e3 / expected:.3g} ms; "
        "something else may use this machine, or its software changed: autotune check PROFILE measures again"
    )


class Pace:
    """Compares the rate of windows of optimizer steps with the profile's, after a warm-up.

    Args:
        expected: items per second by the profile.
        say: called once, with the warning.
        clock: seconds, monotonic.
        words: the warning, of the rate seen and the one expected.
        patience: slow windows in a row that make a warning. With 1, one window is looked at and no more; with more,
            looking goes on until the warning.
    """

    def __init__(
        self,
        expected: float,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.perf_counter,
        words: Callable[[float, float], str] = in_steps,
        patience: int = 1,
    ) -> None:
        self.expected, self.say, self.clock, self.words, self.patience = expected, say, clock, words, patience
        self._last: float | None = None
        self._warmed = self._steps = self._slow = 0
        self._items = self._seconds = 0.0

    def tick(self, items: float = 1.0) -> bool:
        """Call after each optimizer step, with what it trained on. False once there is nothing more to see."""
        now = self.clock()
        if self._warmed < WARMUP_STEPS:
            self._warmed += 1
        elif self._last is not None:
            self._steps += 1
            self._items += items
            self._seconds += now - self._last
        self._last = now
        return self._steps < STEPS or self._judge()

    def pause(self) -> None:
        """The time since the last step is not the training's: an evaluation, a checkpoint."""
        self._last = None

    def _judge(self) -> bool:
        """Look at a full window; False where it was the last."""
        slow = self.expected * self._seconds > TOLERANCE * self._items
        self._slow = self._slow + 1 if slow else 0
        if self._slow == self.patience:
            self.say(self.words(self._items / self._seconds, self.expected))
            return False
        self._steps, self._items, self._seconds = 0, 0.0, 0.0
        return self.patience > 1
