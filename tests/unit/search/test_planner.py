"""The staged search: the contract, and how close to the optimum it comes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np
import pytest

from autotune.knobs.knob import LEVELS
from autotune.knobs.space import Space, build
from autotune.search import staged
from autotune.search.candidates import SMALL, candidates, combinations
from autotune.search.protocol import Observation, Proposal, Search
from autotune.search.sampler import StagedSearch
from autotune.search.staged import rank
from autotune.search.study import open_study
from autotune.stats.measurement import Block, Measurement
from autotune.stats.outcome import Completed, Crashed
from benchmarks.replay.strategies import after, search
from benchmarks.replay.world import ModelWorld
from benchmarks.simulation import machines
from benchmarks.simulation.simulator import Bench, Machine
from tests.search.contract import SearchContract


class TestContract(SearchContract):
    def make(self, space: Space, history: Sequence[Observation] = (), seed: int = 0) -> Search:
        study = open_study()
        for observation in history:
            study.record(observation)
        return StagedSearch(study, space, space.context.baseline, seed=seed)


def found(machine: Machine, level: str, trials: int, seeds: range, noise: float = 0.02) -> list[float]:
    world = ModelWorld(machine, noise)
    return [search("ours", world, level, seed, after(trials)).quality(trials, by_model=True) for seed in seeds]


@pytest.mark.parametrize(
    ("make", "level"), [(machines.images, "safe"), (machines.transformer, "amp"), (machines.embedding, "safe")]
)
def test_many_seeds_reach_the_optimum_in_25_trials(make, level):
    qualities = found(make(), level, 25, range(10))
    assert statistics.median(qualities) >= 0.97
    assert np.quantile(qualities, 0.1) >= 0.93


@pytest.mark.parametrize(("make", "level"), [(machines.mlp, "safe"), (machines.conv, "amp")])
def test_two_core_machines_within_16_trials(make, level):
    assert statistics.median(found(make(), level, 16, range(5))) >= 0.97


@pytest.mark.parametrize(("level", "seeds"), [("safe", 1), ("amp", 1), ("max", 3)])
def test_eight_gpus_within_40_trials(level, seeds):
    assert statistics.median(found(machines.big(), level, 40, range(seeds))) >= 0.97


def test_known_settings_are_tried_first_where_they_fit():
    space = ModelWorld(machines.images()).spaces["safe"]
    own = space.context.baseline
    good = next(settings for _, settings in space.moves(own))
    study = open_study()
    search_ = StagedSearch(study, space, own, known={"safe": (good, own.but(threads=4096)), "max": (own,)})
    proposed = []
    for _ in range(3):
        proposal = search_.ask()
        assert proposal is not None
        proposed.append(proposal)
        search_.tell(proposal, Completed(measurement=Measurement((Block(640, 1.0, 10),))))
    assert [each.stage for each in proposed[:2]] == ["baseline", "known"]
    assert proposed[1].settings == good
    assert proposed[2].stage != "known"


def test_a_warm_start_is_sooner_as_good():
    world, trials = ModelWorld(machines.transformer()), 6
    cold, warm = (
        statistics.median(
            search(name, world, "amp", seed, after(trials)).quality(trials, by_model=True) for seed in range(5)
        )
        for name in ("ours", "warm")
    )
    assert warm >= max(cold, 0.97)


def test_data_parallel_is_tried_once_beside_processes():
    """It does not win here, and the report is to say by how much."""
    machine = machines.big()
    bench, method = Bench(machine), StagedSearch(open_study(), machine.space(), machine.context.baseline)
    for _ in range(8):
        proposal = method.ask()
        method.tell(proposal, bench.run(proposal.settings))
    (tried,) = (o for o in method.study.observations() if o.settings.data_parallel)
    assert tried.rate
    assert tried.settings.processes == 1


def test_machines_never_seen_before():
    qualities = [found(machines.anywhere(seed), "amp", 16, range(seed, seed + 1), 0.03)[0] for seed in range(100, 115)]
    assert statistics.median(qualities) >= 0.96


def test_the_default_leads_where_it_is_best_and_is_run_again():
    """The loop's planned repeats of the baseline may be told as well: they tell drift and luck from effects."""
    machine, leads = machines.default_best(), 0
    for seed in range(20):
        bench, baseline = Bench(machine, seed), machine.context.baseline
        method = StagedSearch(open_study(), machine.space(), baseline, seed=seed)
        while len(method.study.observations()) < 15 and (proposal := method.ask()) is not None:
            method.tell(proposal, bench.run(proposal.settings))
            if len(method.study.observations()) % 4 == 0:
                repeat = Proposal(baseline, "again", len(method.study.observations()))
                method.tell(repeat, bench.run(baseline))
        leads += rank(method.study.observations(), machine.space(), 1, baseline=True) == (baseline,)
        assert baseline not in rank(method.study.observations(), machine.space(), 5)
    assert leads >= 15


def test_one_search_after_another_by_level():
    """Each level starts where the one below ended and keeps its observations."""
    machine = machines.transformer()
    qualities: dict[str, list[float]] = {level: [] for level in LEVELS}
    for seed in range(5):
        study, history, start, bench = open_study(), [], None, Bench(machine, seed)
        for level in LEVELS:
            space = machine.space(level)
            method = StagedSearch(study, space, start or machine.context.baseline, seed=seed)
            while len(method.study.observations()) < len(history) + 10 and (proposal := method.ask()) is not None:
                method.tell(proposal, bench.run(proposal.settings))
            history = method.study.observations()
            start = rank(history, space, 1)[0]
            qualities[level].append(machine.rate(start) / machine.optimum(level))
    assert all(statistics.median(found) >= 0.95 for found in qualities.values()), qualities


def test_a_choice_that_always_crashes_is_given_up():
    machine = machines.images()
    method = StagedSearch(open_study(), machine.space(), machine.context.baseline)
    bench, crashes = Bench(machine), 0
    for _ in range(20):
        if (proposal := method.ask()) is None:
            break
        broken = proposal.settings.num_workers > 0
        crashes += broken
        outcome = Crashed(reason="dataset uses the device") if broken else bench.run(proposal.settings)
        method.tell(proposal, outcome)
    assert 1 <= crashes <= 5
    assert rank(method.study.observations(), machine.space(), 1)[0].num_workers == 0


def test_a_thorough_search_goes_on_if_expected_gains_are_small():
    machine = machines.default_best()
    trials = {}
    for thorough in (False, True):
        method = StagedSearch(open_study(), machine.space(), machine.context.baseline, seed=1, thorough=thorough)
        bench = Bench(machine, 1)
        while len(method.study.observations()) < 60 and (proposal := method.ask()) is not None:
            method.tell(proposal, bench.run(proposal.settings))
        trials[thorough] = len(method.study.observations())
    assert trials[True] > trials[False]


def test_pinned_knobs_are_searched_around():
    """The baseline itself holds none of the pinned values."""
    machine = machines.conv()
    space = build(machine.context, "safe", {"processes": 2, "threads": 1, "num_workers": 1, "interop_threads": 1})
    method, bench = StagedSearch(open_study(), space, machine.context.baseline), Bench(machine)
    for _ in range(8):
        proposal = method.ask()
        method.tell(proposal, bench.run(proposal.settings))
    tried = [observation.settings for observation in method.study.observations()[1:]]
    assert {(s.processes, s.threads, s.num_workers, s.interop_threads) for s in tried} == {(2, 1, 1, 1)}


def test_few_settings_are_weighed_where_millions_compete(monkeypatch):
    """What a proposal costs is what it looks at: no clock is asked."""
    machine = machines.big(train_seconds=36_000.0)
    space = machine.space("max")
    assert combinations(space) > 1_000_000
    weighed: list[int] = []

    def counted(*given):
        found = candidates(*given)
        weighed.append(len(found))
        return found

    monkeypatch.setattr(staged, "candidates", counted)
    method = StagedSearch(open_study(), space, machine.context.baseline)
    bench = Bench(machine)
    for _ in range(20):
        if (proposal := method.ask()) is None:
            break
        method.tell(proposal, bench.run(proposal.settings))
    assert len(weighed) > 8
    assert max(weighed) <= SMALL


def test_the_ranking_shrinks_a_lucky_trial():
    """A single lucky trial of a setting that repeats say is no better does not lead."""
    machine = machines.conv()
    space, baseline = machine.space(), machine.context.baseline
    bench = Bench(machine, noise=0.0, drift=0.0)
    lucky, steady = baseline.but(interop_threads=1), machine.best()
    history = [Observation(s, bench.run(s), "safe") for s in (baseline, steady, steady, lucky)]
    assert rank(history, space, 5)[0] == steady
    assert rank(history[:1], space, 5) == ()
    assert rank([], space, 5) == ()
