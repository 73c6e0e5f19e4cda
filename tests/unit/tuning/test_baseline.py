"""The baseline is the user's own settings, or what fits the memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from autotune.errors import NothingUsable, UserCodeError
from autotune.knobs.settings import Settings
from autotune.search.protocol import Observation
from autotune.stats.outcome import (
    BUDGET_OVER,
    Crashed,
    Outcome,
    OutOfMemory,
    TimedOut,
)
from autotune.tuning.baseline import Baseline, settle_baseline
from tests.tuning.fakes import (
    OWN,
    FakeBench,
    completed,
    speeds,
)


class TestSettlingTheBaseline:
    WANTED = OWN.but(num_workers=2, batch_size=32)

    def settle(
        self, fate: Callable[[Settings], Outcome | None], known: Sequence[Observation] = ()
    ) -> tuple[Baseline, FakeBench]:
        """The baseline, and the bench that measured it."""
        bench = FakeBench(speeds({}), fate=fate)
        return settle_baseline(self.WANTED, known, lambda s: bench.measure(s, 0.0, math.inf)), bench

    def test_what_runs_is_the_users_own(self) -> None:
        found, bench = self.settle(lambda _: None)
        assert found.settings == self.WANTED
        assert bench.measured == [o.settings for o in found.trials] == [self.WANTED]
        assert found.trials[0].outcome == found.outcome
        assert found.notes == ()

    def test_out_of_memory_falls_back_to_no_workers(self) -> None:
        found, bench = self.settle(lambda s: OutOfMemory("host memory ran out") if s.num_workers else None)
        assert found.settings.num_workers == 0
        assert found.settings.global_batch == self.WANTED.global_batch
        assert found.notes == (
            "your own settings do not fit this machine: host memory ran out",
            "the baseline is your settings without loader workers",
        )
        assert [o.settings for o in found.trials] == bench.measured == [self.WANTED, found.settings]
        assert found.trials[-1].outcome.measured

    def test_nothing_fits(self) -> None:
        with pytest.raises(NothingUsable, match="host memory ran out") as error:
            self.settle(lambda _: OutOfMemory("host memory ran out", "DefaultCPUAllocator"))
        assert "DefaultCPUAllocator" in str(error.value)
        assert error.value.exit_code == 4

    def test_an_error_of_the_users_ends_at_once_with_its_own_traceback(self) -> None:
        """N01: one trial, exit 3, the user's own traceback."""
        trials: list[Settings] = []
        with pytest.raises(UserCodeError, match="NameError: name 'Resnet'") as error:
            self.settle(
                lambda s: trials.append(s) or Crashed("NameError: name 'Resnet' is not defined", "Traceback: line 3")
            )
        assert len(trials) == 1
        assert error.value.traceback == "Traceback: line 3"
        assert error.value.exit_code == 3

    def test_an_error_behind_the_memory_is_an_error(self) -> None:
        def fate(chosen: Settings) -> Outcome:
            return OutOfMemory("full") if chosen.num_workers else Crashed("ValueError: bad", "Traceback")

        with pytest.raises(UserCodeError, match="ValueError"):
            self.settle(fate)

    def test_a_resumed_run_knows_it_already(self) -> None:
        known = [Observation(self.WANTED, completed(900.0), "safe")]
        found, bench = self.settle(lambda _: None, known)
        assert found == Baseline(self.WANTED, completed(900.0))
        assert bench.measured == []
        assert len(known) == 1

    def test_a_resumed_run_knows_what_did_not_fit(self) -> None:
        found, bench = self.settle(lambda _: None, [Observation(self.WANTED, OutOfMemory("full"), "safe")])
        assert bench.measured == [found.settings]
        assert found.settings.num_workers == 0
        assert len(found.notes) == 2

    def test_a_budget_that_ends_first_asks_for_a_longer_one(self) -> None:
        with pytest.raises(NothingUsable, match="longer --budget"):
            self.settle(lambda _: TimedOut("too late", phase=BUDGET_OVER))
