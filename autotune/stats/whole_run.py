"""Forecasts a script's whole run with faster steps: start, evaluation and checkpoints stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean, median

FAR = 5.0
"""A step this many times as long as the median one holds more than training, such as an evaluation."""
ADDED_SECONDS = 0.5
"""What `autotune run` adds to the start of a script that it changes (`python -m benchmarks.unmodified`)."""


@dataclass(frozen=True)
class WholeRun:
    """The user's own run, with the user's own settings.

    Attributes:
        start_seconds: from its start until it trains.
        step_seconds: of a step of training.
        other_share: of the time from the first step on, the part that is no step: evaluation, checkpoints, logs; None
            if no end of an epoch was seen.
        steps: of the whole run; None if the script does not show how many.
    """

    start_seconds: float
    step_seconds: float
    other_share: float | None = None
    steps: int | None = None

    def seconds(self, speedup: float = 1.0) -> float | None:
        """Return how long the run takes if each step is ``speedup`` times as fast, under `autotune run`; as the user
        starts it if ``speedup`` is 1. None if its length is not known."""
        if self.steps is None:
            return None
        training, share = self.steps * self.step_seconds, self.other_share or 0.0
        start = self.start_seconds + (ADDED_SECONDS if speedup != 1 else 0.0)
        return start + training / speedup + training * share / (1 - share)

    def of(self, seconds: float) -> WholeRun:
        """Return this run if it takes ``seconds``."""
        training = max(0.0, seconds - self.start_seconds) * (1 - (self.other_share or 0.0))
        return replace(self, steps=max(1, round(training / self.step_seconds)))

    def speedup(self, of_a_step: float) -> float | None:
        """Return how many times as fast the run is, or an epoch if the run's length is not known.

        Returns:
            None if neither is known.
        """
        before, after = self.seconds(), self.seconds(of_a_step)
        if before and after:
            return before / after
        if self.other_share is None:
            return None
        return 1 / ((1 - self.other_share) / of_a_step + self.other_share)


def made_up(seconds: Sequence[float], ends: Sequence[bool], epoch: int | None) -> tuple[float, float | None]:
    """Return seconds of a step with nothing after it, and the share of the time that is no step; see `WholeRun`.

    Args:
        seconds: of each step that was followed, with what comes after it.
        ends: for each, whether an epoch ended after it.
        epoch: steps of an epoch; None if the run has none that end.
    """
    inside = [step for step, end in zip(seconds, ends, strict=True) if not end]
    usual = [step for step in inside if step < FAR * median(inside)]
    if not usual:
        return 0.0, None
    step = mean(usual)
    other = sum(long - step for long in inside if long not in usual) / len(inside)  # after each step, on average
    if epoch is not None:
        between = [long - step for long, end in zip(seconds, ends, strict=True) if end]
        if not between:
            return step, None
        other += max(0.0, mean(between)) / epoch
    return step, other / (step + other)
