"""The last line of a training: what was in force if an error ends it; how fast it was if that was asked."""

from __future__ import annotations

import atexit
import sys
import time
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from autotune.environment import DISABLE
from autotune.runtime.notes import tell
from autotune.stats.whole_run import split_time

IN_FORCE: dict[Callable[[], str], BaseException | None] = {}
"""What returns the settings in force as words, and the only error that it explains; None for any."""


def explain(words: Callable[[], str], only: BaseException | None = None) -> Callable[[], object]:
    """Say ``words``, if they are not empty, after an error that ends this process. Returns a function that forgets."""
    if not IN_FORCE:
        atexit.register(say)
    IN_FORCE[words] = only
    return lambda: IN_FORCE.pop(words, None)


def say() -> None:
    """Say what is in force, once, if an error that nobody caught ends this process. Prompts show errors and go on."""
    error = getattr(sys, "last_value", None)
    ends = isinstance(error, Exception | KeyboardInterrupt)  # who interrupts it may find that it hangs
    while IN_FORCE:
        words, only = IN_FORCE.popitem()
        if ends and only in (None, error) and not hasattr(sys, "ps1") and (text := words()):
            tell(f"this training ran with {text}. {DISABLE}=1 runs it without")


MOST_STEPS, FIRST_STEPS = 10_000, 5
"""The last steps are timed, but not those in which training starts."""


class StepRate:
    """Steps that have ended, and when.

    Args:
        expected: steps a second, by the profile.

    Attributes:
        steps: that were counted.
    """

    def __init__(self, expected: float) -> None:
        self._expected, self.steps = expected, 0
        self._ends: deque[float] = deque(maxlen=MOST_STEPS)

    def count(self, *_: object) -> None:
        """Count a step."""
        self.steps += 1
        if self.steps > FIRST_STEPS:
            self._ends.append(time.perf_counter())

    def takes(self, batch: Any) -> Any:
        """Count a step, and return its ``batch``."""
        self.count()
        return batch

    def __str__(self) -> str:
        """Return the line. What takes much longer than a step, such as an evaluation, does not count."""
        seconds = [after - before for before, after in pairwise(self._ends)]
        step, _other = split_time(seconds, [None] * len(seconds), None)
        own = f"{1 / step:.3g} a second" if step else "too few to time"
        return f"{self.steps} steps, {own}; the profile: {self._expected:.3g} a second"
