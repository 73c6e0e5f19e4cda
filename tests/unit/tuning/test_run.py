"""Search, race and proof on machines with known truth."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import Interrupted
from autotune.knobs.level import LEVELS
from autotune.knobs.settings import Settings
from autotune.knobs.space import Space
from autotune.search.history import Trial
from autotune.stats.decide import Reason
from autotune.stats.outcome import Crashed, NotApplied, Outcome, OutOfMemory, TimedOut, WrongNumbers
from autotune.stats.proof import ANALYSES, BASELINE, compare
from autotune.tuning.result import partial_answers, proven_answers
from autotune.tuning.schedule import ROUNDS
from autotune.tuning.search import REPEAT_EVERY
from tests.doubles.fake_bench import (
    FAST,
    FASTER,
    LARGE,
    LOW,
    MACHINE,
    NARROW,
    OWN,
    SPACES,
    STILL,
    FakeBench,
    Listed,
    Rate,
    completed,
    empty,
    listed,
    make,
    run,
    speeds,
    wandering,
)
from tests.doubles.simulation import machines

NO_GAIN: dict[str, tuple[Rate, tuple[float, float, float]]] = {
    "default is best": (MACHINE.rate, (0.03, 0.02, 0.05)),
    "nothing matters": (machines.flat().rate, (0.03, 0.02, 0.05)),
    "others are slower": (lambda chosen: 1000.0 if chosen == OWN else 800.0, (0.3, 0.02, 0.05)),
}


class TestAnswers:
    """Rates of errors are counted by tests/slow/tuning; here are a few seeds of each kind of machine."""

    @pytest.mark.parametrize(("rate", "noise"), NO_GAIN.values(), ids=NO_GAIN)
    def test_without_a_gain_the_default_is_kept(self, rate: Rate, noise: tuple[float, float, float]) -> None:
        for seed in range(2):
            results = proven_answers(run(make(FakeBench(rate, seed, noise=noise), wandering(seed))), LEVELS)
            assert all(result.settings == OWN and not result.proven for result in results.values())

    def test_a_clear_gain_is_found_and_proven_at_every_level(self) -> None:
        bench = FakeBench(speeds({FAST: 1.3, FASTER: 1.5, LOW: 2.0, LARGE: 3.0}))
        results = proven_answers(run(make(bench, listed(safe=[FAST, FASTER], amp=[LOW], max=[LARGE]))), LEVELS)
        assert [results[level].settings for level in LEVELS] == [FASTER, LOW, LARGE]
        assert all(result.proven for result in results.values())

    @pytest.mark.parametrize(("worth", "proven"), [(0.9, True), (0.5, False)])
    def test_a_larger_batch_is_proven_by_what_its_items_are_worth(self, worth: float, proven: bool) -> None:
        bench = FakeBench(speeds({LOW: 1.5, LARGE: 2.5}))
        started = make(bench, listed(amp=[LOW], max=[LARGE]))
        started.count_by(lambda settings: worth if settings == LARGE else 1.0)
        result = proven_answers(run(started), LEVELS)["max"]
        assert result.proven
        assert (result.settings == LARGE) == proven
        assert result.speedup.value == pytest.approx(2.5 * worth if proven else 1.5, rel=0.1)

    def test_a_baseline_that_is_measured_anew_takes_the_place_of_earlier_rates(self) -> None:
        bench = FakeBench(speeds({}), noise=STILL, fate=lambda settings: Crashed("x") if settings == FAST else None)
        state = make(bench, listed())
        for each in (OWN, FAST, LOW):
            state.measure(each, "safe")
        bench.rate = lambda _: 7.0
        state.measure_anew()
        assert [(trial.settings, trial.rate) for trial in state.history] == [
            (FAST, None),
            (OWN, pytest.approx(7.0, rel=0.01)),
        ]
        assert state.estimates == {OWN: pytest.approx(7.0, rel=0.01)}

    def test_with_the_projects_own_search(self) -> None:
        machine = machines.conv()
        spaces = {level: machine.space(level) for level in LEVELS}
        bench = FakeBench(machine.rate)
        started = make(bench, None, budget=75.0, spaces=spaces)
        results = proven_answers(run(started), LEVELS)
        places = [k for k, o in enumerate(started.history) if o.settings == machine.context.baseline]
        gaps = (later - earlier for earlier, later in pairwise([*places, len(started.history)]))
        assert max(gaps) <= REPEAT_EVERY + 1, "the baseline is measured again every few trials"
        assert results["safe"].proven
        assert machine.rate(results["safe"].settings) >= 0.85 * machine.optimum("safe")
        assert machine.rate(results["amp"].settings) >= machine.rate(results["safe"].settings)

    def test_a_level_starts_from_the_best_of_the_one_below(self) -> None:
        starts = {}

        def search(space: Space, start: Settings, thorough: bool, history: Sequence[Trial]) -> Listed:
            starts[space.level] = start
            return Listed({"safe": [FAST, FASTER], "amp": [LOW]}.get(space.level, []))

        run(make(FakeBench(speeds({FAST: 1.2, FASTER: 1.5, LOW: 1.1}), noise=STILL), search))
        assert starts == {"safe": OWN, "amp": FASTER, "max": FASTER}

    def test_what_time_is_left_is_searched_thoroughly(self) -> None:
        asked = []

        def search(space: Space, start: Settings, thorough: bool, history: Sequence[Trial]) -> Listed:
            asked.append((space.level, thorough))
            return Listed([])

        run(make(FakeBench(speeds({}), noise=STILL), search))
        assert asked == [*((level, False) for level in [*LEVELS, *LEVELS]), *((level, True) for level in LEVELS)]


FATES = [
    Crashed("SIGSEGV"),
    OutOfMemory("host memory ran out"),
    TimedOut("no progress while stepping"),
    WrongNumbers("NaN"),
    NotApplied("threads"),
]


class TestFailures:
    @pytest.mark.parametrize("fate", FATES, ids=lambda fate: fate.kind)
    def test_do_not_stop_the_search(self, fate: Outcome) -> None:
        broken = [settings for _, settings in SPACES["safe"].moves(OWN) if settings != FASTER][:5]
        bench = FakeBench(speeds({FASTER: 1.5}), fate=lambda chosen: fate if chosen in broken else None, noise=STILL)
        state = run(make(bench, listed(safe=[*broken, FASTER])))
        assert proven_answers(state, LEVELS)["safe"].settings == FASTER
        assert [o.outcome for o in state.history if not o.outcome.measured] == [fate] * 5

    def test_of_everything_keep_the_baseline(self) -> None:
        bench = FakeBench(speeds({}), fate=lambda _: Crashed("SIGSEGV"))
        results = proven_answers(run(make(bench, wandering(0))), LEVELS)
        assert all(result.settings == OWN for result in results.values())
        assert bench.contests == [], "there is nothing to prove"

    @pytest.mark.parametrize(("dead", "best"), [("amp", FASTER), (BASELINE, OWN)])
    def test_what_dies_in_the_proof_is_not_written_and_without_a_baseline_nothing_is(self, dead, best) -> None:
        bench = FakeBench(speeds({FASTER: 1.5, LOW: 2.0}), noise=STILL, dead=frozenset({dead}))
        results = proven_answers(run(make(bench, listed(safe=[FASTER], amp=[LOW]))), LEVELS)
        assert results["safe"].settings == results["amp"].settings == best
        assert results["amp"].reason is Reason.TOO_FEW_ROUNDS


class TestDeadline:
    MANY = [settings for _, settings in SPACES["safe"].moves(OWN)] * 9

    @settings(max_examples=12, deadline=None)
    @given(budget=st.floats(1.0, 90.0), trial=st.floats(0.1, 12.0), seed=st.integers(0, 99))
    def test_is_passed_by_one_trial_at_most(self, budget: float, trial: float, seed: int) -> None:
        bench = FakeBench(machines.conv().rate, seed, trial=trial)
        end = bench.now + budget
        run(make(bench, wandering(seed, count=40), budget))
        assert bench.now <= end + trial

    def test_no_time_at_all_keeps_the_baseline(self) -> None:
        bench = FakeBench(speeds({FASTER: 2.0}))
        state = run(make(bench, listed(safe=[FASTER]), budget=1.5))
        assert bench.measured == []
        assert all(result.settings == OWN for result in proven_answers(state, LEVELS).values())

    @pytest.mark.parametrize("budget", [20.0, 40.0, 80.0])
    def test_time_is_kept_back_for_the_proof(self, budget: float) -> None:
        """However much there is to try, what was found is proven."""
        many = [settings for _, settings in SPACES["safe"].moves(FASTER)] * 9
        bench = FakeBench(speeds({FASTER: 2.0}), noise=STILL)
        results = proven_answers(run(make(bench, listed(safe=[FASTER, *many], amp=many, max=many), budget)), LEVELS)
        assert results["safe"].settings == FASTER
        assert results["safe"].proven

    def test_levels_share_the_searching_time(self) -> None:
        bench = FakeBench(speeds({}))
        state = run(make(bench, listed(**dict.fromkeys(LEVELS, self.MANY)), budget=200.0))
        counts = [sum(o.level == level for o in state.history) for level in LEVELS]
        assert counts[0] > max(counts[1:])
        assert min(counts) > 0

    def test_every_level_is_tried_once_though_one_trial_took_the_time_of_all(self) -> None:
        class Slow(FakeBench):
            def measure(self, settings: Settings, give_up_below: float, deadline: float) -> Outcome:
                self.spend(60.0 * (settings == FAST))
                return super().measure(settings, give_up_below, deadline)

        by_level = {"safe": [FAST, FASTER], "amp": [LOW, LOW.but(num_workers=3)], "max": [LARGE]}
        state = run(make(Slow(speeds({FAST: 1.2})), listed(**by_level)))
        assert [o.settings for o in state.history if o.settings != OWN] == [FAST, LOW, LARGE]
        assert proven_answers(state, LEVELS)["safe"].proven

    def test_a_level_that_ends_early_leaves_its_time_to_the_next(self) -> None:
        def trials(safe: Sequence[Settings]) -> int:
            state = run(make(FakeBench(speeds({})), listed(safe=safe, amp=self.MANY), budget=60.0))
            return sum(o.level == "amp" for o in state.history)

        assert trials(safe=[]) > trials(safe=self.MANY)


class TestProof:
    def test_a_clear_answer_goes_on_until_its_interval_is_narrow(self) -> None:
        bench = FakeBench(speeds({FASTER: 1.5}), noise=STILL)
        state = run(make(bench, listed(safe=[FASTER])))
        first, second, *_ = ANALYSES
        assert bench.contests == [{BASELINE: OWN, "safe": FASTER}] * second
        assert len(state.rounds) == second * ROUNDS
        early = [turn for turn in state.rounds if turn.replicate <= first]
        assert compare(early, "safe", BASELINE).gain
        assert not compare(early, "safe", BASELINE).narrow
        assert compare(state.rounds, "safe", BASELINE).narrow

    def test_an_open_one_is_extended_once(self) -> None:
        bench = FakeBench(speeds({FASTER: 1.03}), noise=(0.0, 0.05, 0.05))
        state = run(make(bench, listed(safe=[FASTER])))
        assert len(bench.contests) == max(ANALYSES)
        assert len({turn.replicate for turn in state.rounds}) == max(ANALYSES)

    def test_the_baselines_rate_is_that_of_the_proof(self) -> None:
        bench = FakeBench(speeds({FASTER: 1.5}), noise=STILL)
        started = make(bench, listed(safe=[FASTER]), history=[Trial(OWN, completed(500.0), "safe")])
        assert started.baseline_rate == pytest.approx(500.0)
        assert run(started).baseline_rate == pytest.approx(1000.0, rel=0.01)


class TestRace:
    def bench(self, winner: Settings) -> FakeBench:
        """Trials say FAST by a hair; taking turns shows the winner."""
        bench = FakeBench(speeds({FAST: 1.5, FASTER: 1.5} | {winner: 1.6}), noise=(0.0, 0.001, 0.001))
        flattering = speeds({FAST: 1.6, FASTER: 1.59})
        bench.measure = lambda chosen, *_: bench.spend(1.0) or completed(flattering(chosen))  # type: ignore[method-assign]
        return bench

    @pytest.mark.parametrize("winner", [FAST, FASTER])
    def test_near_equal_finalists_take_turns(self, winner: Settings) -> None:
        bench = self.bench(winner)
        state = run(make(bench, listed(safe=[FAST, FASTER])))
        results = proven_answers(state, LEVELS)
        assert set(bench.contests[0].values()) == {OWN, FAST, FASTER}
        assert results["safe"].settings == winner
        assert all(set(turn.rates) == {BASELINE, "safe"} for turn in state.rounds), "what chose does not prove"
        assert len(bench.contests) == 1 + NARROW

    def test_never_takes_the_time_of_the_first_look(self) -> None:
        """Whatever the budget: where finalists raced, enough replicates follow to prove what won."""
        raced = []
        for budget in range(6, 60, 2):
            bench = self.bench(FASTER)
            state = run(make(bench, listed(safe=[FAST, FASTER]), budget=float(budget)))
            race = bool(bench.contests) and BASELINE not in bench.contests[0]
            raced.append(race)
            if race:
                assert len({turn.replicate for turn in state.rounds}) >= 2, budget
        assert raced == sorted(raced), "more time never takes the race away"
        assert True in raced
        assert False in raced

    def test_of_equals_the_simplest_is_chosen(self) -> None:
        """What does not matter stays as the user has it, though luck measured it a hair faster."""
        simple, complicated = FAST, FASTER
        bench = FakeBench(speeds({simple: 1.5, complicated: 1.505}), noise=(0.0, 0.0, 0.0), interrupt_at=(None, 1))
        started = make(bench, listed(safe=[complicated, simple]))
        with pytest.raises(Interrupted):
            run(started)
        assert started.chosen["safe"] == simple


class TestInterruption:
    @pytest.mark.parametrize(
        ("at", "by_level", "best", "ratios"),
        [
            ((None, 2), {"safe": [FASTER], "amp": [LOW]}, [FASTER, LOW, LOW], [1.5, 2.0, 2.0]),
            ((4, None), {"safe": [FAST, FASTER, LOW]}, [FASTER] * 3, [1.5] * 3),
        ],
        ids=["proof: what was chosen", "search: the best so far"],
    )
    def test_in_the(self, at, by_level, best, ratios) -> None:
        bench = FakeBench(speeds({FAST: 1.3, FASTER: 1.5, LOW: 2.0}), noise=STILL, interrupt_at=at)
        started = make(bench, listed(**by_level))
        with pytest.raises(Interrupted):
            run(started)
        results = partial_answers(started, LEVELS)
        assert [results[level].settings for level in LEVELS] == best
        assert [result.speedup.value for result in results.values()] == pytest.approx(ratios, rel=0.03)
        assert not any(result.proven or result.speedup.gain for result in results.values())
        assert results["safe"].reason is Reason.INTERRUPTED

    def test_before_anything_was_measured_is_the_baseline(self) -> None:
        result = partial_answers(empty(), ("safe",))["safe"]
        assert (result.settings, result.rate, result.speedup.value) == (OWN, 0.0, 1.0)
