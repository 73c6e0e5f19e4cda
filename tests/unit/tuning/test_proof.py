"""The proof: who takes part, how often, and who drops out."""

from __future__ import annotations

import pytest

from autotune.stats.decide import BASELINE
from autotune.stats.proof import LOOKS, Round
from autotune.tuning.proof import prove, without_least_promising
from autotune.tuning.schedule import MOST_ROUNDS, ROUNDS, rounds_per_generation
from tests.tuning.fakes import (
    FakeBench,
    speeds,
)
from tests.tuning.test_race import EXACT, FINALISTS, LOW, OWN, searched


class TestProof:
    def test_what_is_decided_leaves_the_others_its_time(self) -> None:
        bench = FakeBench(speeds({FINALISTS[0]: 0.7, LOW[0]: 1.12}), noise=(0.0, 0.05, 0.0))
        state, tools = searched(bench, {FINALISTS[0]: 1200.0, LOW[0]: 1300.0})
        state.chosen = {"safe": FINALISTS[0], "amp": LOW[0]}
        prove(state, tools)
        names = [set(contest) for contest in bench.contests]
        assert names[: min(LOOKS)] == [{BASELINE, "safe", "amp"}] * min(LOOKS)
        assert len(names) > min(LOOKS)
        assert names[-1] == {BASELINE, "amp"}

    def test_what_is_no_gain_takes_the_first_look_only(self) -> None:
        bench = FakeBench(speeds({FINALISTS[0]: 0.8}), noise=(0.002, 0.002, 0.002))
        state, tools = searched(bench, {FINALISTS[0]: 1200.0})
        state.chosen = {"safe": FINALISTS[0]}
        prove(state, tools)
        assert len(bench.contests) == min(LOOKS)

    def test_where_time_is_short_the_least_promising_stays_out(self) -> None:
        """And not the highest level, whatever it promises."""
        bench = FakeBench(speeds({FINALISTS[0]: 1.02, LOW[0]: 1.8}), noise=EXACT)
        state, _ = searched(bench, {FINALISTS[0]: 1020.0, LOW[0]: 1800.0})
        state.chosen = {"safe": FINALISTS[0], "amp": LOW[0]}
        contenders = {BASELINE: OWN, **state.chosen}
        assert list(without_least_promising(state, contenders)) == [BASELINE, "amp"]
        assert list(without_least_promising(state, {**contenders, "max": LOW[1]})) == [BASELINE, "safe", "amp"]


class TestRounds:
    @pytest.mark.parametrize(("scatter", "least", "most"), [(0.001, ROUNDS, ROUNDS), (0.5, MOST_ROUNDS, MOST_ROUNDS)])
    def test_scatter_makes_more_rounds_worth_their_time(self, scatter: float, least: int, most: int) -> None:
        bench = FakeBench(speeds({FINALISTS[0]: 1.5}), noise=(0.0, 0.0, scatter))
        state, tools = searched(bench, {FINALISTS[0]: 1500.0})
        state.chosen = {"safe": FINALISTS[0]}
        state.race_rounds = [Round(0, {"a": rate, "b": 1.0}) for rate in (1.0 + scatter, 1.0 / (1.0 + scatter), 1.0)]
        prove(state, tools)
        first = [turn for turn in state.rounds if turn.generation == 1]
        assert least <= len(first) <= most

    def test_the_first_look_goes_before_long_generations(self) -> None:
        bench = FakeBench(speeds({FINALISTS[0]: 1.5}), noise=(0.0, 0.0, 0.1))
        state, tools = searched(bench, {FINALISTS[0]: 1500.0}, budget=12.0)
        state.chosen = {"safe": FINALISTS[0]}
        state.race_rounds = [Round(0, {"a": rate, "b": 1.0}) for rate in (1.5, 0.5, 1.0)]
        assert rounds_per_generation(state) == MOST_ROUNDS
        prove(state, tools)
        rounds = [sum(turn.generation == g for turn in state.rounds) for g in range(1, min(LOOKS) + 1)]
        assert min(rounds) >= 1
        assert rounds[0] < MOST_ROUNDS
        assert bench.now <= tools.schedule.deadline

    def test_slow_steps_take_one(self) -> None:
        slow = OWN.but(batch_size=2048)
        bench = FakeBench(lambda _: 1000.0)
        state, tools = searched(bench, {slow: 1000.0})
        state.baseline, state.chosen = slow, {"safe": slow.but(num_workers=1)}
        prove(state, tools)
        counts = {sum(t.generation == g for t in state.rounds) for g in range(1, state.generations + 1)}
        assert counts == {1}
