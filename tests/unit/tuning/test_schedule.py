"""The deadline and every estimate of time."""

import pytest

from autotune.knobs.settings import Settings
from autotune.search.history import Trial
from autotune.stats.measurement import Block, Measurement
from autotune.stats.outcome import Completed, Crashed
from autotune.tuning import schedule
from autotune.tuning.proof import run_replicate
from autotune.tuning.state import Schedule, items_per_sample
from tests.doubles.fake_bench import FakeBench, empty, make

OWN = Settings(threads=2, batch_size=64)


def trial(settings: Settings, rate: float, start_seconds: float = 0.5) -> Trial:
    """A measured trial of samples."""
    block = Block(round(rate * 1000), 1000.0, round(rate * 1000 / settings.global_batch))
    return Trial(settings, Completed(measurement=Measurement((block,)), start_seconds=start_seconds), "safe")


@pytest.mark.parametrize(("budget", "patience"), [(5.0, 10.0), (60.0, 24.0), (600.0, 60.0)])
def test_the_baseline_may_take_a_share_of_the_budget(budget: float, patience: float) -> None:
    assert Schedule(lambda: 100.0, 100.0, budget).patience == patience


class TestBesideOthers:
    @pytest.mark.parametrize(("cpu_wait", "long"), [(0.05, False), (0.3, True)])
    def test_the_baselines_trial_tells_at_first(self, cpu_wait: float, long: bool) -> None:
        blocks = tuple(Block(640, 1.0, 10, cpu_wait) for _ in range(3))
        first = Trial(OWN, Completed(measurement=Measurement(blocks), start_seconds=0.5), "safe")
        wanted = schedule.LONG_BLOCK_SECONDS if long else schedule.BLOCK_SECONDS
        state = empty(OWN)
        state.add(first)
        state.estimate_durations()
        assert schedule.block_seconds(state, schedule.BLOCK_SECONDS) == wanted

    def test_a_replicate_tells_how_the_next_one_is(self) -> None:
        bench = FakeBench(lambda _: 640.0)
        state = make(bench)
        for bench.cpu_wait in (0.3, 0.0, 0.0):
            run_replicate(state, 1, {"baseline": state.baseline}, 2)
        short, long = schedule.BLOCK_SECONDS, schedule.LONG_BLOCK_SECONDS
        assert bench.blocks == [short, short, long, long, short, short]


def test_repeats_are_averaged_and_failures_keep_the_estimate() -> None:
    state = empty(OWN)
    state.add(trial(OWN, 100.0), trial(OWN, 300.0), Trial(OWN, Crashed("no"), "safe"))
    assert state.baseline_rate == pytest.approx(200.0)
    assert len(state.history) == 3


def test_items_are_those_that_the_task_counts() -> None:
    blocks = (Block(items=4 * 16 * 128, seconds=1.0, steps=4), Block(items=2 * 16 * 128, seconds=0.5, steps=2))
    measured = Trial(Settings(batch_size=16), Completed(measurement=Measurement(blocks)), "safe")
    failed = Trial(Settings(batch_size=8), Crashed("x"), "safe")
    assert items_per_sample([failed, measured]) == 128
