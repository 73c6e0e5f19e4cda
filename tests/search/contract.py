"""What any search method must do. Inherit, and say how to make one; every test here is then collected for it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

import pytest

from autotune.knobs.settings import Settings
from autotune.knobs.space import Space, build
from autotune.search.protocol import Observation, Proposal, Search
from autotune.stats.outcome import OutOfMemory
from benchmarks.simulation import machines
from benchmarks.simulation.simulator import Bench, Machine

STAGES = ("baseline", "design", "moves", "model", "again")


class SearchContract:
    """Mix-in of tests for one `Search`."""

    def make(self, space: Space, history: Sequence[Observation] = (), seed: int = 0) -> Search:
        """A search over ``space``, starting from its baseline."""
        raise NotImplementedError

    def drive(
        self, bench: Bench, level: str, trials: int, space: Space | None = None
    ) -> list[tuple[Proposal, Observation]]:
        """Up to ``trials`` trials."""
        search, done = self.make(space or bench.machine.space(level), seed=bench.seed), []
        while len(done) < trials and (proposal := search.ask()) is not None:
            outcome = bench.run(proposal.settings)
            search.tell(proposal, outcome)
            done.append((proposal, Observation(proposal.settings, outcome, level)))
        return done

    @pytest.mark.parametrize("make", [*machines.SMALL, machines.big])
    def test_starts_with_the_baseline_and_stays_feasible(self, make):
        machine = make()
        space = machine.space("amp")
        proposals = [proposal for proposal, _ in self.drive(Bench(machine), "amp", 15)]
        assert proposals[0].settings == machine.context.baseline
        assert all(proposal.settings in space and proposal.stage in STAGES for proposal in proposals)
        assert [proposal.number for proposal in proposals] == list(range(len(proposals)))

    @pytest.mark.parametrize("level", ["safe", "max"])
    def test_same_seed_same_search(self, level):
        first, second = (self.drive(Bench(machines.images(), seed=3), level, 12) for _ in range(2))
        assert first == second

    def test_never_repeats_by_itself(self):
        proposals = [p for p, _ in self.drive(Bench(machines.mlp(), seed=1), "amp", 40)]
        once = [p.settings for p in proposals if p.stage != "again"]
        assert len(set(once)) == len(once) > 5

    def test_small_space_each_once(self):
        machine = machines.images()
        space = _twelve(machine)
        everything = set(space.enumerate())
        assert len(everything) == 12
        tried = [p.settings for p, _ in self.drive(Bench(machine), "safe", 30, space) if p.stage != "again"]
        assert len(tried) == len(set(tried)) <= 12
        assert set(tried) <= everything

    def test_out_of_memory_is_not_provoked_again(self):
        machine = _cliff()
        done = self.drive(Bench(machine, seed=2), "max", 50)
        failed: list[Settings] = []
        for _, observation in done:
            settings = observation.settings
            assert not any(
                settings.batch_size >= other.batch_size
                and (settings.precision, settings.compile, settings.channels_last, settings.data_parallel)
                == (other.precision, other.compile, other.channels_last, other.data_parallel)
                for other in failed
            )
            if isinstance(observation.outcome, OutOfMemory):
                failed.append(settings)
        assert failed, "the cliff was never met: the test shows nothing"
        assert len(failed) <= 0.2 * len(done) + 1

    @pytest.mark.parametrize("cut", [1, 4, 9])
    def test_resumes_exactly(self, cut):
        done = self.drive(Bench(machines.conv(), seed=5), "amp", 10)
        history = [observation for _, observation in done]
        resumed = self.make(machines.conv().space("amp"), history[:cut], seed=5)
        assert resumed.ask() == done[cut][0]

    def test_stops_where_nothing_matters(self):
        lengths = [len(self.drive(Bench(machines.flat(), seed=seed), "safe", 40)) for seed in range(15)]
        assert statistics.median(lengths) <= 22

    def test_clear_losers_may_end_early_but_the_baseline_never(self):
        done = self.drive(Bench(machines.conv()), "safe", 6)
        assert done[0][0].give_up_below == 0.0
        best = max(observation.rate for _, observation in done)
        assert all(0 < proposal.give_up_below < best for proposal, _ in done[1:])

    def test_a_broken_baseline_ends_the_search(self):
        space = machines.conv().space()
        search = self.make(space)
        search.tell(search.ask(), OutOfMemory(reason="host memory ran out"))
        assert search.ask() is None


def _twelve(machine: Machine) -> Space:
    """Three shapes x two layouts x two allocators."""
    fixed = {"num_workers": 0, "optimizer_impl": "default", "interop_threads": 2}
    return build(machine.context, "safe", fixed | {"binding": "none", "malloc": "default"})


def _cliff() -> Machine:
    """A device holds the baseline's batch and not twice as much; the more samples in flight the faster."""
    machine = machines.big()
    return replace(machine, work=replace(machine.work, memory=(0.28 * 2**30, 4 * 2**30)))
