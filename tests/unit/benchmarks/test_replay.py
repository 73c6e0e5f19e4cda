"""Replay: draws scatter around the truth, cost what trials cost, and the whole tuner ends within its budget."""

from __future__ import annotations

import statistics

import pytest

from autotune.knobs.level import LEVELS
from benchmarks.grid.file import Grid
from benchmarks.replay.pipeline import tune
from benchmarks.replay.world import GridWorld, ModelWorld
from tests.doubles.simulation import machines
from tests.unit.benchmarks.test_grid import HEADER, OTHER, OWN, trial

WORLD = ModelWorld(machines.conv())


class TestGridWorld:
    def world(self) -> GridWorld:
        anchors = [trial(OWN, rate) for rate in (90.0, 95.0, 100.0, 105.0, 110.0)]
        return GridWorld("made up", Grid(HEADER, (*anchors, trial(OTHER, 150.0))))

    def test_draws_scatter_around_the_truth_by_the_recorded_luck(self) -> None:
        draws = self.world().draws(0)
        rates = [draws.trial(OTHER).measurement.rate for _ in range(400)]  # type: ignore[attr-defined]
        assert statistics.mean(rates) == pytest.approx(150.0, rel=0.02)
        assert min(rates) < 140.0 < 160.0 < max(rates)


def test_the_whole_tuner_ends_within_its_budget_and_says_the_truth() -> None:
    for seed in range(3):
        tuned = tune(WORLD, seed, 60.0)
        assert tuned.seconds <= 63.0, "a real bench cuts the last trial short; this one does not"
        assert [claim.level for claim in tuned.claims] == list(LEVELS)
        assert all(claim.ratio > 0.99 for claim in tuned.claims), "never slower than the user's own"
