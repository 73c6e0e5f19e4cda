"""One warning where training is clearly slower than the profile promises."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

WARMUP_STEPS = 10
STEPS = 20
"""Optimizer steps of one window."""
WINDOWS = 15
"""So many windows are looked at: the first few hundred steps."""
SLOW_WINDOWS = 3
"""So many windows in a row must be slow: a burst of other work is no reason to warn."""
TOLERANCE = 1.5


class Slow(Protocol):
    """Makes the warning."""

    def begin(self) -> None:
        """A slow window is over; the next may be slow too."""

    def words(self, rate: float, expected: float) -> str:
        """The warning, in items per second."""


class Pace:
    """Compares the rate of windows of optimizer steps with the profile's, after a warm-up.

    Args:
        expected: items per second by the profile.
        say: called once, with the warning.
        slow: makes the warning.
        clock: seconds, monotonic.
        windows: how many are looked at; None for all, until the warning.
    """

    def __init__(
        self,
        expected: float,
        say: Callable[[str], None],
        slow: Slow,
        clock: Callable[[], float] = time.perf_counter,
        windows: int | None = WINDOWS,
    ) -> None:
        self.expected, self.say, self.slow, self.clock, self.windows = expected, say, slow, clock, windows
        self._last: float | None = None
        self._warmed = self._steps = self._slow = self._looked = 0
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
        self._looked += 1
        self._slow = self._slow + 1 if self.expected * self._seconds > TOLERANCE * self._items else 0
        if self._slow == 1:
            self.slow.begin()
        if self._slow == SLOW_WINDOWS:
            self.say(self.slow.words(self._items / self._seconds, self.expected))
            return False
        self._steps, self._items, self._seconds = 0, 0.0, 0.0
        self._last = self.clock()  # looking is no training
        return self.windows is None or self._looked < self.windows
