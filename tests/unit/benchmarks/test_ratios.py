"""Ratios with Student's interval."""

from __future__ import annotations

import math

import pytest

from benchmarks.ratios import Ratio, ratio_of


def test_the_interval_is_students() -> None:
    found = ratio_of([0.1, 0.2, 0.3])
    assert found.value == pytest.approx(math.exp(0.2))
    half = 4.302653 * 0.1 / math.sqrt(3)  # t of 2 degrees of freedom, standard deviation 0.1
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((0.2 - half, 0.2 + half))


def test_one_pair_has_no_bounds() -> None:
    assert ratio_of([math.log(2)]) == Ratio(2.0, 0.0, math.inf, 1)
    assert ratio_of([0.0]).as_dict()["high"] is None
