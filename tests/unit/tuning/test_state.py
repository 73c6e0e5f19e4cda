"""What a run knows."""

from __future__ import annotations

import pytest

from autotune.knobs.settings import Settings
from autotune.search.history import Trial
from autotune.stats.measurement import Block, Measurement
from autotune.stats.outcome import Completed, Crashed
from autotune.tuning.state import items_per_sample
from tests.doubles.fake_bench import (
    OWN,
    completed,
    empty,
)


class TestBooking:
    def test_repeats_are_averaged_and_failures_keep_the_estimate(self) -> None:
        state = empty()
        for outcome in (completed(100.0), completed(300.0), Crashed("no")):
            state.add(Trial(OWN, outcome, "safe"))
        assert state.baseline_rate == pytest.approx(200.0)
        assert len(state.history) == 3


class TestItemsPerSample:
    def test_counts_what_the_task_counts(self) -> None:
        blocks = (Block(items=4 * 16 * 128, seconds=1.0, steps=4), Block(items=2 * 16 * 128, seconds=0.5, steps=2))
        outcome = Completed(measurement=Measurement(blocks))
        failed = Trial(Settings(batch_size=8), Crashed("x"), "safe")
        assert items_per_sample([failed, Trial(Settings(batch_size=16), outcome, "safe")]) == 128
        assert items_per_sample([failed]) == 1.0
