"""Race and proof: who takes part, how often, and who drops out."""

import pytest

from autotune.knobs.settings import Settings
from autotune.search.history import Trial
from autotune.stats.proof import ANALYSES, BASELINE, Round, compare
from autotune.tuning.proof import prove, seconds_to_decide, without_least_promising
from autotune.tuning.race import RUNGS, race
from autotune.tuning.schedule import MOST_ROUNDS, ROUNDS
from autotune.tuning.state import RunState
from tests.doubles.fake_bench import FakeBench, completed, listed, make, speeds

OWN = Settings(threads=2, batch_size=64)
FOUND = [OWN.but(num_workers=count) for count in (1, 2, 3, 4)]
LOW = [settings.but(precision="bf16") for settings in FOUND]
EXACT = (0.0, 0.0, 0.0)


def searched(bench: FakeBench, rates: dict[Settings, float], budget: float = 500.0) -> RunState:
    """After a search whose trials measured ``rates``."""
    history = [Trial(settings, completed(rate), "safe") for settings, rate in {OWN: 1000.0, **rates}.items()]
    state = make(bench, listed(), history=history, budget=budget)
    state.baseline, state.start_seconds = OWN, 0.1
    return state


class TestRace:
    def test_the_slower_half_leaves_after_each_rung(self) -> None:
        bench = FakeBench(speeds(dict(zip(FOUND, (1.1, 1.2, 1.3, 1.4), strict=True))), noise=EXACT)
        winners = race(searched(bench, dict.fromkeys(FOUND, 1200.0)), {"safe": FOUND})
        assert winners == {"safe": FOUND[3]}
        assert [set(contest.values()) for contest in bench.contests] == [{OWN, *FOUND}, {OWN, *FOUND[2:]}]
        assert len(bench.contests) == RUNGS

    def test_settings_in_two_fields_run_once(self) -> None:
        bench = FakeBench(speeds(dict.fromkeys(LOW, 1.5)), noise=EXACT)
        race(searched(bench, {}), {"safe": FOUND[:2], "amp": [FOUND[0], LOW[0]]})
        assert len(bench.contests[0]) == 1 + 3


class TestProof:
    def test_what_is_decided_leaves_the_others_its_time(self) -> None:
        bench = FakeBench(speeds({FOUND[0]: 0.7, LOW[0]: 1.12}), noise=(0.0, 0.05, 0.0))
        state = searched(bench, {FOUND[0]: 1200.0, LOW[0]: 1300.0})
        state.chosen = {"safe": FOUND[0], "amp": LOW[0]}
        prove(state)
        names = [set(contest) for contest in bench.contests]
        assert names[: min(ANALYSES)] == [{BASELINE, "safe", "amp"}] * min(ANALYSES)
        assert len(names) > min(ANALYSES)
        assert names[-1] == {BASELINE, "amp"}

    def test_what_is_no_gain_takes_the_first_analysis_only(self) -> None:
        bench = FakeBench(speeds({FOUND[0]: 0.8}), noise=(0.002, 0.002, 0.002))
        state = searched(bench, {FOUND[0]: 1200.0})
        state.chosen = {"safe": FOUND[0]}
        prove(state)
        assert len(bench.contests) == min(ANALYSES)

    def test_where_time_is_short_the_least_promising_stays_out(self) -> None:
        """And not the highest level, whatever it promises."""
        bench = FakeBench(speeds({FOUND[0]: 1.02, LOW[0]: 1.8}), noise=EXACT)
        state = searched(bench, {FOUND[0]: 1020.0, LOW[0]: 1800.0})
        state.chosen = {"safe": FOUND[0], "amp": LOW[0]}
        candidates = {BASELINE: OWN, **state.chosen}
        assert list(without_least_promising(state, candidates)) == [BASELINE, "amp"]
        assert list(without_least_promising(state, {**candidates, "max": LOW[1]})) == [BASELINE, "safe", "amp"]


class TestMoreTime:
    """What a run without a budget takes beyond the usual one."""

    def proven(self, gain: float, noise: float, budget: float) -> RunState:
        bench = FakeBench(speeds({FOUND[0]: gain}), noise=(0.0, noise, 0.0))
        state = searched(bench, {FOUND[0]: 1000.0 * gain}, budget=budget)
        state.chosen = {"safe": FOUND[0]}
        prove(state)
        return state

    def test_an_open_level_takes_what_decides_it(self) -> None:
        state = self.proven(1.15, 0.08, budget=14.0)
        more = seconds_to_decide(state)
        assert 0 < more < 60
        before = state.replicates
        state.schedule.budget += more
        prove(state)
        assert state.replicates > before
        assert compare(state.rounds, "safe", BASELINE).gain

    @pytest.mark.parametrize(("gain", "noise"), [(1.5, 0.01), (0.8, 0.01)], ids=["decided", "hopeless"])
    def test_a_settled_one_takes_none(self, gain: float, noise: float) -> None:
        assert seconds_to_decide(self.proven(gain, noise, budget=60.0)) == 0.0


class TestRounds:
    @pytest.mark.parametrize(("scatter", "least", "most"), [(0.001, ROUNDS, ROUNDS), (0.5, MOST_ROUNDS, MOST_ROUNDS)])
    def test_scatter_makes_more_rounds_worth_their_time(self, scatter: float, least: int, most: int) -> None:
        bench = FakeBench(speeds({FOUND[0]: 1.5}), noise=(0.0, 0.0, scatter))
        state = searched(bench, {FOUND[0]: 1500.0})
        state.chosen = {"safe": FOUND[0]}
        state.race_rounds = [Round(0, {"a": rate, "b": 1.0}) for rate in (1.0 + scatter, 1.0 / (1.0 + scatter), 1.0)]
        prove(state)
        first = [turn for turn in state.rounds if turn.replicate == 1]
        assert least <= len(first) <= most

    def test_slow_steps_take_one(self) -> None:
        slow = OWN.but(batch_size=2048)
        bench = FakeBench(lambda _: 1000.0)
        state = searched(bench, {slow: 1000.0})
        state.baseline, state.chosen = slow, {"safe": slow.but(num_workers=1)}
        prove(state)
        counts = {sum(t.replicate == g for t in state.rounds) for g in range(1, state.replicates + 1)}
        assert counts == {1}
