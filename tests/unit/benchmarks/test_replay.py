"""Replay: draws scatter around the truth, cost what trials cost, and the whole tuner ends within its budget."""

from __future__ import annotations

import statistics

import pytest

from autotune.knobs.knob import LEVELS
from autotune.stats.measurement import Block, Measurement
from benchmarks.grid.file import Grid
from benchmarks.replay.pipeline import tune
from benchmarks.replay.strategies import STRATEGIES, after, search, within
from benchmarks.replay.world import GridWorld, ModelWorld, shortened
from benchmarks.simulation import machines
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

    def test_time_goes_by_as_recorded(self) -> None:
        draws = self.world().draws(0)
        draws.trial(OWN)
        assert draws.seconds == pytest.approx(1.2, abs=15.0), "the 100 s of its one block are longer or shorter by luck"
        before = draws.seconds
        process = draws.process(OWN)
        assert process is not None
        assert draws.seconds - before == pytest.approx(0.5)
        assert process.block(0.3) == pytest.approx(100.0, rel=0.2)

    def test_runs_are_reproducible(self) -> None:
        first, second, other = (self.world().draws(seed).trial(OWN) for seed in (1, 1, 5))
        assert first == second != other


class TestShortened:
    MEASURED = Measurement(tuple(Block(100, 0.1, 1) for _ in range(9)))

    def test_ends_where_the_real_trial_would(self) -> None:
        assert len(shortened(self.MEASURED, 1.0, 0.0).blocks) == 3
        assert len(shortened(self.MEASURED, 1.0, 5000.0).blocks) == 1, "a clear loser"

    def test_a_faster_machine_takes_less_time(self) -> None:
        assert shortened(self.MEASURED, 2.0, 0.0).rate == pytest.approx(2000.0)


@pytest.mark.parametrize("name", [name for name in STRATEGIES if name != "gp"])
def test_every_strategy_begins_with_the_baseline_and_finds_no_less(name: str) -> None:
    run = search(name, WORLD, "safe", 0, after(12))
    assert run.history[0].settings == WORLD.machine.context.baseline
    assert len(run.history) <= 12
    own = WORLD.truth(run.history[0].settings) / WORLD.optimum("safe")
    assert own <= run.quality(len(run.history), by_model=name == "ours") <= 1.0 + 1e-9


def test_time_ends_a_search() -> None:
    run = search("random", WORLD, "safe", 0, within(10.0))
    assert run.clock[-2] < 10.0 <= run.clock[-1]


def test_the_whole_tuner_ends_within_its_budget_and_says_the_truth() -> None:
    for seed in range(3):
        tuned = tune(WORLD, seed, 60.0)
        assert tuned.seconds <= 63.0, "a real bench cuts the last trial short; this one does not"
        assert [claim.level for claim in tuned.claims] == list(LEVELS)
        assert all(claim.ratio > 0.99 for claim in tuned.claims), "never slower than the user's own"
