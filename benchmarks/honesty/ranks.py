"""Rank correlation. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's rank correlation; ties get their mean rank. NaN where all values of one are equal."""
    a, b = ranks(first), ranks(second)
    if len(set(a)) == 1 or len(set(b)) == 1:
        return float("nan")
    return statistics.correlation(a, b)


def ranks(values: Sequence[float]) -> list[float]:
    """Rank of each value from 1, equal ones at the mean of their places."""
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) + 1) / 2 for value in values]


def spread(count: int, total: int) -> list[int]:
    """``count`` distinct positions from first to last of ``total``, evenly."""
    if count >= total:
        return list(range(total))
    if count == 1:
        return [total - 1]
    return sorted({round(step * (total - 1) / (count - 1)) for step in range(count)})
