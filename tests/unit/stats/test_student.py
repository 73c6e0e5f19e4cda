"""Student's t, against published tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.stats.student import student_cdf, student_quantile

TABLE = [  # (probability, df, quantile): published tables of Student's t
    (0.75, 1, 1.000),
    (0.975, 1, 12.706),
    (0.9875, 1, 25.452),
    (0.975, 2, 4.303),
    (0.9875, 3, 4.177),
    (0.99, 4, 3.747),
    (0.975, 7, 2.365),
    (0.995, 10, 3.169),
    (0.95, 30, 1.697),
    (0.975, 120, 1.980),
]


class TestStudent:
    @pytest.mark.parametrize(("probability", "df", "quantile"), TABLE)
    def test_quantiles_agree_with_the_table(self, probability: float, df: int, quantile: float) -> None:
        assert student_quantile(probability, df) == pytest.approx(quantile, abs=6e-4)

    @given(st.floats(0.51, 0.9999), st.integers(1, 60))
    def test_cdf_inverts_the_quantile(self, probability: float, df: int) -> None:
        assert student_cdf(student_quantile(probability, df), df) == pytest.approx(probability, abs=1e-9)
