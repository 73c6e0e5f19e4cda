"""Student's t distribution, for whole degrees of freedom."""

from __future__ import annotations

import functools
import math


@functools.cache
def student_quantile(probability: float, df: int) -> float:
    """Return the quantile of Student's t for ``probability`` in (0.5, 1) and integer ``df`` >= 1, by bisection."""
    low, high = 0.0, 1.0
    while student_cdf(high, df) < probability:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if student_cdf(middle, df) < probability else (low, middle)
    return (low + high) / 2


def student_cdf(t: float, df: int) -> float:
    """Return P(T <= t) for t >= 0 and integer df; Abramowitz & Stegun 26.7.3 and 26.7.4."""
    theta = math.atan(t / math.sqrt(df))
    sine, cosine = math.sin(theta), math.cos(theta)
    if df % 2:
        total, term = 0.0, cosine
        for k in range(1, df - 1, 2):
            total += term
            term *= cosine * cosine * (k + 1) / (k + 2)
        inside = 2 / math.pi * (theta + sine * total)
    else:
        total, term = 0.0, 1.0
        for k in range(0, df - 1, 2):
            total += term
            term *= cosine * cosine * (k + 1) / (k + 2)
        inside = sine * total
    return (1 + inside) / 2
