"""The location of log ratios: quiet rounds count in full, rounds beside a neighbour up to a limit."""

from __future__ import annotations

import math
import random

import pytest

from autotune.stats.log_ratio import PRIOR_SPREAD, Sample, estimate


def samples(logs: list[list[float]], *, beside: bool = False) -> list[list[Sample]]:
    return [[Sample(log, beside) for log in replicate] for replicate in logs]


class TestEstimate:
    def test_a_burst_hardly_counts_where_a_neighbour_was_seen(self) -> None:
        """A quiet round as far off counts in full: such a stall is the training's own."""
        calm = [[0.40, 0.41], [0.39, 0.40], [0.41, 0.40], [0.40, 0.39]]
        beside = [*samples(calm), [Sample(0.4), Sample(-2.0, beside=True)]]
        stalled = [*samples(calm), [Sample(0.4), Sample(-2.0)]]
        assert estimate(beside).centre == pytest.approx(0.4, abs=0.01)
        assert estimate(stalled).centre == pytest.approx(0.4 - 2.4 / 10)
        assert estimate(beside).error < 0.03 < estimate(stalled).error

    def test_replicates_that_agree_by_luck_keep_the_usual_spread(self) -> None:
        found = estimate(samples([[0.3], [0.3], [0.3]]))
        assert found.variance == pytest.approx(PRIOR_SPREAD**2 / 3)

    def test_the_luck_of_processes_is_in_the_variance_however_many_rounds_they_take(self) -> None:
        draw = random.Random(0)
        luck = [draw.gauss(0, 0.2) for _ in range(60)]
        logs = [[own + draw.gauss(0, 0.01) for _ in range(20)] for own in luck]
        for beside in (False, True):
            assert math.sqrt(estimate(samples(logs, beside=beside)).variance) == pytest.approx(0.2, rel=0.25)
