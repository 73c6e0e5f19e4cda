"""Forecasts a script's whole run with faster steps: start, evaluation and checkpoints stay as they are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean, median
from typing import Annotated

from autotune.decoding import Count, Rate, span
from autotune.knobs.allocator import GLIBC_RAISES_TO

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
        mmap_threshold: glibc's, in bytes, once it has trained for a while: smaller blocks that are freed are kept. A
            trial has none of the evaluations that raise it.
    """

    start_seconds: Rate
    step_seconds: Rate
    other_share: Annotated[float, span(0, 0.999)] | None = None
    steps: Count | None = None
    mmap_threshold: Count = GLIBC_RAISES_TO

    def seconds(self, speedup: float = 1.0, later: float = 0.0) -> float | None:
        """Return how long the run takes if each step is ``speedup`` times as fast, under `autotune run`, and the first
        one so many seconds ``later``; as the user starts it if ``speedup`` is 1. None if its length is not known."""
        if self.steps is None:
            return None
        training, share = self.steps * self.step_seconds, self.other_share or 0.0
        start = self.start_seconds + (ADDED_SECONDS + later if speedup != 1 else 0.0)
        return start + training / speedup + training * share / (1 - share)

    def of(self, seconds: float) -> "WholeRun":
        """Return this run if it takes ``seconds``."""
        training = max(0.0, seconds - self.start_seconds) * (1 - (self.other_share or 0.0))
        return replace(self, steps=max(1, round(training / self.step_seconds)))

    def speedup(self, of_a_step: float, later: float = 0.0) -> float | None:
        """Return how many times as fast the run of `seconds` is, or an epoch if the run's length is not known.

        Returns:
            None if neither is known.
        """
        before, after = self.seconds(), self.seconds(of_a_step, later)
        if before and after:
            return before / after
        if self.other_share is None:
            return None
        return 1 / ((1 - self.other_share) / of_a_step + self.other_share)


def split_time(
    seconds: Sequence[float], between: Sequence[float | None], epoch: int | None
) -> tuple[float, float | None]:
    """Return seconds of a step with nothing after it, and the share of the time that is no step; see `WholeRun`.

    Args:
        seconds: of each step that was followed, with other work between it and the step before.
        between: for each, seconds of other work if it was the first of an epoch; else None.
        epoch: steps of an epoch; None if the run has none that end.
    """
    inside = [step for step, first in zip(seconds, between, strict=True) if first is None]
    usual = [step for step in inside if step < FAR * median(inside)]
    if not usual:
        return 0.0, None
    step = mean(usual)
    other = sum(long - step for long in inside if long not in usual) / len(inside)  # after each step, on average
    if epoch is not None:
        firsts = [(long, work) for long, work in zip(seconds, between, strict=True) if work is not None]
        if not firsts:
            return step, None
        step += max(0.0, mean([long - work for long, work in firsts]) - step) / epoch  # loader workers start anew
        other += mean([work for _, work in firsts]) / epoch
    return step, other / (step + other)
