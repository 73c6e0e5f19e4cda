"""What more measuring would bring: generations until an open question is likely decided, or an interval narrow."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from autotune.stats.proof import LOOKS, LOWER_ERROR, MIN_GAIN, NARROW, UPPER_ERROR, Round, measured
from autotune.stats.student import student_quantile

SHARE = 0.5
"""Of the error, that a look in the future may spend, roughly."""
MOST_GENERATIONS = 200


def to_decide(rounds: Sequence[Round], contender: str, reference: str) -> int | None:
    """Generations, all told, after which a gain would be claimed if the ratio stays where it is; None: hardly ever."""
    found = measured(rounds, contender, reference)
    if found is None:
        return None
    distance = found.centre - math.log(MIN_GAIN)
    deviation = math.sqrt(found.variance)
    return _first(lambda count: _reach(LOWER_ERROR, count) * deviation <= distance, found.generations)


def to_narrow(rounds: Sequence[Round], contender: str, reference: str) -> int | None:
    """Generations, all told, after which the interval would be narrow; None: hardly ever."""
    found = measured(rounds, contender, reference)
    if found is None:
        return None
    deviation = math.sqrt(found.variance)
    return _first(
        lambda count: (_reach(LOWER_ERROR, count) + _reach(UPPER_ERROR, count)) / 2 * deviation <= NARROW,
        found.generations,
    )


def _reach(error: float, generations: int) -> float:
    """Standard deviations of one generation from the centre to the interval's end."""
    return student_quantile(1 - SHARE * error, generations) / math.sqrt(generations)


def _first(enough: Callable[[int], bool], after: int) -> int | None:
    """The first planned look at least: a single generation says nothing of its scatter."""
    return next((count for count in range(max(after + 1, min(LOOKS)), MOST_GENERATIONS) if enough(count)), None)
