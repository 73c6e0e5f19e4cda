"""Ratios with an interval, from pairs of measurements. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.stats.proof import student_quantile


@dataclass(frozen=True)
class Ratio:
    """A ratio between two bounds, from ``count`` pairs."""

    value: float
    low: float
    high: float
    count: int = 0

    def __str__(self) -> str:
        return f"{self.value:.2f}x ({self.low:.2f} to {self.high:.2f})"

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; a bound that is infinite becomes None."""
        return {name: value if math.isfinite(value) else None for name, value in vars(self).items()}


def ratio_of(logs: Sequence[float]) -> Ratio:
    """Return the geometric mean of ratios with Student's 95 % interval; one ratio alone has no bounds.

    Args:
        logs: natural logarithms of the ratios, at least one.
    """
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return Ratio(math.exp(mean), 0.0, math.inf, 1)
    half = student_quantile(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), len(logs))


def paired(rounds: Sequence[Mapping[str, float]], name: str, reference: str) -> Ratio | None:
    """Return rates of ``name`` over those of ``reference``, over the rounds that have both; None if there are none."""
    logs = [math.log(turn[name] / turn[reference]) for turn in rounds if name in turn and reference in turn]
    return ratio_of(logs) if logs else None
