"""Race and proof: who runs, how often, and what is left out."""

from __future__ import annotations

import pytest

from autotune.core.decide import BASELINE
from autotune.core.proof import LOOKS, Round
from autotune.core.settings import Settings
from autotune.search.protocol import Observation
from autotune.tuning.proof import HEATS, MOST_ROUNDS, ROUNDS, Finals
from autotune.tuning.state import Tuning
from tests.tuning.test_run import FakeBench, completed, quiet, speeds

OWN = Settings(threads=2, batch_size=64)
FIELD = [OWN.but(num_workers=count) for count in (1, 2, 3, 4)]
LOW = [settings.but(precision="bf16") for settings in FIELD]
EXACT = (0.0, 0.0, 0.0)


def finals(bench: FakeBench, rates: dict[Settings, float], budget: float = 500.0) -> Finals:
    """After a search whose trials said ``rates``."""
    tuning = Tuning(OWN)
    for settings, rate in {OWN: 1000.0, **rates}.items():
        tuning.book(Observation(settings, completed(rate), "safe"))
    found = Finals(bench, tuning, bench.clock, bench.now + budget, 0.1, 1.0)
    found.observe = quiet
    return found


class TestRace:
    def test_the_slower_half_leaves_after_each_heat(self) -> None:
        bench = FakeBench(speeds(dict(zip(FIELD, (1.1, 1.2, 1.3, 1.4), strict=True))), noise=EXACT)
        winners = finals(bench, dict.fromkeys(FIELD, 1200.0)).race({"safe": FIELD})
        assert winners == {"safe": FIELD[3]}
        assert [set(contest.values()) for contest in bench.contests] == [{OWN, *FIELD}, {OWN, *FIELD[2:]}]
        assert len(bench.contests) == HEATS

    def test_settings_in_two_fields_run_once(self) -> None:
        bench = FakeBench(speeds(dict.fromkeys(LOW, 1.5)), noise=EXACT)
        finals(bench, {}).race({"safe": FIELD[:2], "amp": [FIELD[0], LOW[0]]})
        assert len(bench.contests[0]) == 1 + 3

    def test_a_level_no_faster_than_the_one_below_is_left_out(self) -> None:
        bench = FakeBench(speeds({FIELD[0]: 1.5, LOW[0]: 1.2}), noise=EXACT)
        trials = {FIELD[0]: 1200.0, FIELD[1]: 1190.0, LOW[0]: 1300.0}
        raced = finals(bench, trials)
        assert set(raced.favourites({"safe": FIELD[:2], "amp": LOW[:1]})) == {"safe", "amp"}
        assert raced.race({"safe": FIELD[:2], "amp": LOW[:1]}) == {"safe": FIELD[0]}

    def test_a_level_no_faster_than_the_baseline_is_left_out(self) -> None:
        bench = FakeBench(speeds({FIELD[0]: 0.98, LOW[0]: 1.2}), noise=EXACT)
        raced = finals(bench, {FIELD[0]: 1100.0, FIELD[1]: 1090.0, LOW[0]: 1300.0})
        assert raced.race({"safe": FIELD[:1], "amp": LOW[:2]}) == {"amp": LOW[0]}

    def test_no_time_no_race(self) -> None:
        bench = FakeBench(speeds({}), noise=EXACT)
        trials = {FIELD[0]: 1200.0, FIELD[1]: 1300.0}
        assert finals(bench, trials, budget=2.0).race({"safe": FIELD[:2]}) == {"safe": FIELD[1]} or bench.contests == []
        assert bench.contests == []


class TestProof:
    def test_what_is_decided_leaves_the_others_its_time(self) -> None:
        bench = FakeBench(speeds({FIELD[0]: 0.7, LOW[0]: 1.06}), noise=(0.0, 0.05, 0.0))
        proving = finals(bench, {FIELD[0]: 1200.0, LOW[0]: 1300.0})
        proving.tuning.chosen = {"safe": FIELD[0], "amp": LOW[0]}
        proving.prove()
        names = [set(contest) for contest in bench.contests]
        assert names[: min(LOOKS)] == [{BASELINE, "safe", "amp"}] * min(LOOKS)
        assert len(names) > min(LOOKS)
        assert names[-1] == {BASELINE, "amp"}

    def test_where_time_is_short_the_least_promising_stays_out(self) -> None:
        """And not the highest level, whatever it promises."""
        bench = FakeBench(speeds({FIELD[0]: 1.02, LOW[0]: 1.8}), noise=EXACT)
        proving = finals(bench, {FIELD[0]: 1020.0, LOW[0]: 1800.0})
        proving.tuning.chosen = {"safe": FIELD[0], "amp": LOW[0]}
        contenders = {BASELINE: OWN, **proving.tuning.chosen}
        assert proving._least_promising(contenders) == "safe"
        assert proving._least_promising({**contenders, "max": LOW[1]}) == "max"


class TestRounds:
    @pytest.mark.parametrize(("scatter", "least", "most"), [(0.001, ROUNDS, ROUNDS), (0.5, MOST_ROUNDS, MOST_ROUNDS)])
    def test_scatter_makes_more_rounds_worth_their_time(self, scatter: float, least: int, most: int) -> None:
        bench = FakeBench(speeds({FIELD[0]: 1.5}), noise=(0.0, 0.0, scatter))
        proving = finals(bench, {FIELD[0]: 1500.0})
        proving.tuning.chosen = {"safe": FIELD[0]}
        proving.raced = [Round(0, {"a": rate, "b": 1.0}) for rate in (1.0 + scatter, 1.0 / (1.0 + scatter), 1.0)]
        proving.prove()
        first = [turn for turn in proving.tuning.rounds if turn.generation == 1]
        assert least <= len(first) <= most

    def test_the_first_look_goes_before_long_generations(self) -> None:
        bench = FakeBench(speeds({FIELD[0]: 1.5}), noise=(0.0, 0.0, 0.1))
        proving = finals(bench, {FIELD[0]: 1500.0}, budget=12.0)
        proving.tuning.chosen = {"safe": FIELD[0]}
        proving.raced = [Round(0, {"a": rate, "b": 1.0}) for rate in (1.5, 0.5, 1.0)]
        assert proving._rounds() == MOST_ROUNDS
        proving.prove()
        rounds = [sum(turn.generation == g for turn in proving.tuning.rounds) for g in range(1, min(LOOKS) + 1)]
        assert min(rounds) >= 1
        assert rounds[0] < MOST_ROUNDS
        assert bench.now <= proving.deadline

    def test_slow_steps_take_one(self) -> None:
        slow = OWN.but(batch_size=2048)
        bench = FakeBench(lambda _: 1000.0, baseline=slow)
        tuning = Tuning(slow)
        tuning.book(Observation(slow, completed(1000.0), "safe"))
        proving = Finals(bench, tuning, bench.clock, bench.now + 500.0, 0.1, 1.0)
        proving.observe = quiet
        tuning.chosen = {"safe": slow.but(num_workers=1)}
        proving.prove()
        assert {sum(t.generation == g for t in tuning.rounds) for g in range(1, proving.generation + 1)} == {1}
