"""The loop on machines with known truth, by a clock that only the bench moves."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.core.decide import BASELINE, SAME, UNTRIED
from autotune.core.errors import Interrupted, NothingUsable, UserCodeError
from autotune.core.knobs import LEVELS
from autotune.core.measurement import Block, Measurement
from autotune.core.outcome import Completed, Crashed, NotApplied, Outcome, OutOfMemory, TimedOut, WrongNumbers
from autotune.core.proof import LOOKS
from autotune.core.settings import Settings
from autotune.core.space import Space
from autotune.report.live import Progress
from autotune.search.protocol import Observation, Proposal, Search
from autotune.search.staged import StagedSearch
from autotune.search.staged import finalists as posterior_finalists
from autotune.search.study import open_study
from autotune.tuning.proof import ROUNDS
from autotune.tuning.search import REPEAT_EVERY, Tuner, items_per_sample
from autotune.tuning.state import Tuning, settle_baseline
from benchmarks.replay import machines
from benchmarks.replay.simulator import Machine

MACHINE = machines.default_best()
OWN = MACHINE.context.baseline
SPACES = {level: MACHINE.space(level) for level in LEVELS}
Rate = Callable[[Settings], float]


@dataclass
class FakeBench:
    """Measures by a formula; every second it costs moves its own clock.

    Attributes:
        rate: true items per second.
        fate: how a trial of the settings fails; None where it does not.
        trial: seconds of one trial; more than half of it is starting.
        noise: of trials, of a generation's processes, and of one block.
        interrupt_at: the trial, or the generation, in which the user presses Ctrl-C.
    """

    rate: Rate
    seed: int = 0
    fate: Callable[[Settings], Outcome | None] = lambda _: None
    trial: float = 1.0
    noise: tuple[float, float, float] = (0.03, 0.02, 0.05)
    interrupt_at: tuple[int | None, int | None] = (None, None)
    dead: frozenset[str] = frozenset()
    now: float = 1000.0
    baseline: Settings = OWN
    measured: list[Settings] = field(default_factory=list)
    remembered: list[Outcome] = field(default_factory=list)
    contests: list[dict[str, Settings]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.longest = 0.0

    def clock(self) -> float:
        return self.now

    def spend(self, seconds: float) -> None:
        self.now += seconds

    def remember(self, outcome: Outcome) -> None:
        self.remembered.append(outcome)

    def measure(self, settings: Settings, give_up_below: float, deadline: float) -> Outcome:
        self.measured.append(settings)
        if len(self.measured) == self.interrupt_at[0]:
            raise Interrupted(2)
        self.spend(self.trial)
        return self.fate(settings) or completed(self.rate(settings) * self.luck(0), self.trial)

    def luck(self, which: int) -> float:
        return math.exp(self.draw.gauss(0, self.noise[which]))

    @contextmanager
    def contest(self, contenders: Mapping[str, Settings], deadline: float) -> Iterator[FakeContest]:
        self.contests.append(dict(contenders))
        if len(self.contests) == self.interrupt_at[1]:
            raise Interrupted(15)
        before = self.now
        self.spend(0.6 * self.trial * len(contenders))
        yield FakeContest(self, {name: self.rate(chosen) * self.luck(1) for name, chosen in contenders.items()})
        self.longest = max(self.longest, self.now - before)


class FakeContest:
    """One generation: each process keeps its luck."""

    def __init__(self, bench: FakeBench, rates: dict[str, float]) -> None:
        self.bench, self.rates = bench, rates

    def round(self, seconds: float) -> dict[str, float]:
        self.bench.spend(seconds * len(self.rates))
        return {name: rate * self.bench.luck(2) for name, rate in self.rates.items() if name not in self.bench.dead}


def completed(rate: float, seconds: float = 1.0) -> Completed:
    """A measured trial of so many items per second."""
    return Completed(
        measurement=Measurement(
            (Block(round(1e6 * rate), 1e6, max(1, round(1e6 * rate / MACHINE.context.baseline.global_batch))),)
        ),
        losses=(1.0,),
        seconds=seconds,
        start_seconds=0.6 * seconds,
    )


@dataclass
class Listed:
    """A search that proposes these settings in turn."""

    pending: list[Settings]
    told: list[Outcome] = field(default_factory=list)

    def ask(self) -> Proposal | None:
        return Proposal(self.pending.pop(0), "moves", 0, None, 0.0) if self.pending else None

    def tell(self, proposal: Proposal, outcome: Outcome) -> None:
        self.told.append(outcome)


def listed(**by_level: Sequence[Settings]) -> Callable[[Space, Settings, Sequence[Observation], bool], Search]:
    """A search for every level that proposes what is given for it, each once."""
    left = {level: Listed(list(by_level.get(level, ()))) for level in LEVELS}
    return lambda space, start, history, thorough: left[space.level]


def wandering(seed: int, count: int = 8) -> Callable[[Space, Settings, Sequence[Observation], bool], Search]:
    """A search that proposes random moves from where it starts."""

    def search(space: Space, start: Settings, history: Sequence[Observation], thorough: bool) -> Search:
        draw = random.Random(f"{seed} {space.level}")
        moves = [settings for _, settings in space.moves(start, far=True)]
        return Listed([] if thorough else draw.sample(moves, min(count, len(moves))))

    return search


def staged(space: Space, start: Settings, history: Sequence[Observation], thorough: bool) -> Search:
    """The project's own search."""
    return StagedSearch(space, open_study(), start=start, history=history, thorough=thorough)


def best_measured(history: Sequence[Observation], space: Space, count: int) -> tuple[Settings, ...]:
    """Finalists by their rate, unshrunk: winners' luck included."""
    rates = {o.settings: o.rate for o in history if o.rate and o.settings in space and o.settings != OWN}
    return tuple(sorted(rates, key=lambda chosen: -rates[chosen])[:count])


def make(
    bench: FakeBench,
    search: Callable[[Space, Settings, Sequence[Observation], bool], Search],
    budget: float = 120.0,
    history: Sequence[Observation] | None = None,
    spaces: Mapping[str, Space] = SPACES,
    finalists: Callable[[Sequence[Observation], Space, int], Sequence[Settings]] = best_measured,
) -> Tuner:
    """A tuner whose baseline has been measured, or whose ``history`` is resumed."""
    own = next(iter(spaces.values())).context.baseline
    deadline = bench.now + budget
    if history is None:
        bench.spend(bench.trial)
        history = [Observation(own, completed(bench.rate(own) * bench.luck(0), bench.trial), "safe")]
    return Tuner(bench, spaces, search, finalists, bench.clock, deadline, history)


def quiet(**_: Any) -> None:
    """Nobody watches."""


def speeds(table: Mapping[Settings, float]) -> Rate:
    """Rates of the named settings; 1000 for all others."""
    return lambda chosen: 1000.0 * table.get(chosen, 1.0)


FAST = next(s for what, s in SPACES["safe"].moves(OWN) if what == "num_workers")
FASTER = next(s for what, s in SPACES["safe"].moves(FAST) if what == "optimizer_impl")
LOW = FASTER.but(precision="bf16")
LARGE = LOW.but(batch_size=2 * LOW.batch_size)
FIRST = min(LOOKS)
"""Generations of the proof's first look."""
STILL = (0.002, 0.002, 0.002)
"""A machine with hardly any noise."""


class TestAnswers:
    def test_default_is_kept_where_it_is_best(self) -> None:
        """L08, 100 seeds: whatever luck chose for the proof, the default is what is written."""
        kept = 0
        for seed in range(100):
            bench = FakeBench(MACHINE.rate, seed)
            results = make(bench, wandering(seed)).run(quiet).results(LEVELS)
            kept += all(result.settings == OWN and not result.proven for result in results.values())
        assert kept >= 99

    def test_no_effect_is_answered_by_no_gain_or_cannot_tell(self) -> None:
        """M03, 100 seeds of a machine where nothing matters."""
        claims = 0
        for seed in range(100):
            bench = FakeBench(machines.flat().rate, seed)
            tuning = make(bench, wandering(seed)).run(quiet)
            for result in tuning.results(LEVELS).values():
                claims += result.proven
                assert (
                    result.proven or result.note.startswith("cannot tell") or result.note in (*SAME.values(), UNTRIED)
                )
        assert claims <= 3 * 2, "each claim of level safe is carried by the two above it"

    def test_a_slower_setting_is_never_written(self) -> None:
        for seed in range(30):
            bench = FakeBench(lambda chosen: 1000.0 if chosen == OWN else 800.0, seed, noise=(0.3, 0.02, 0.05))
            results = make(bench, wandering(seed)).run(quiet).results(LEVELS)
            assert all(result.settings == OWN for result in results.values())

    def test_a_clear_gain_is_found_and_proven_at_every_level(self) -> None:
        rate = speeds({FAST: 1.3, FASTER: 1.5, LOW: 2.0, LARGE: 3.0})
        found, covered = 0, 0
        for seed in range(60):
            bench = FakeBench(rate, seed)
            search = listed(safe=[FAST, FASTER], amp=[LOW], max=[LARGE])
            results = make(bench, search).run(quiet).results(LEVELS)
            found += [results[level].settings for level in LEVELS] == [FASTER, LOW, LARGE]
            for result, true in zip(results.values(), (1.5, 2.0, 3.0), strict=True):
                assert result.proven
                covered += result.speedup.low <= true <= result.speedup.high
        assert found >= 57
        assert covered >= 0.93 * 3 * 60

    @pytest.mark.parametrize("make_machine", [machines.conv, machines.images])
    def test_with_the_projects_own_search(self, make_machine: Callable[[], Machine]) -> None:
        machine = make_machine()
        spaces = {level: machine.space(level) for level in LEVELS}
        bench = FakeBench(machine.rate, baseline=machine.context.baseline)
        tuner = make(bench, staged, budget=75.0, spaces=spaces, finalists=posterior_finalists)
        results = tuner.run(quiet).results(LEVELS)
        assert results["safe"].proven
        assert machine.rate(results["safe"].settings) >= 0.85 * machine.optimum("safe")
        assert machine.rate(results["amp"].settings) >= machine.rate(results["safe"].settings)

    def test_a_level_that_adds_nothing_carries_the_one_below(self) -> None:
        bench = FakeBench(speeds({FASTER: 1.5, LOW: 1.2}), noise=STILL)
        results = make(bench, listed(safe=[FASTER], amp=[LOW])).run(quiet).results(LEVELS)
        assert results["amp"].settings == results["max"].settings == FASTER
        assert results["amp"].note == SAME["amp"]

    def test_a_level_starts_from_the_best_of_the_one_below(self) -> None:
        starts = {}

        def search(space: Space, start: Settings, history: Sequence[Observation], thorough: bool) -> Search:
            starts[space.level] = start
            return Listed({"safe": [FAST, FASTER], "amp": [LOW]}.get(space.level, []))

        make(FakeBench(speeds({FAST: 1.2, FASTER: 1.5, LOW: 1.1}), noise=STILL), search).run(quiet)
        assert starts == {"safe": OWN, "amp": FASTER, "max": FASTER}

    def test_what_time_is_left_is_searched_thoroughly(self) -> None:
        asked = []

        def search(space: Space, start: Settings, history: Sequence[Observation], thorough: bool) -> Search:
            asked.append((space.level, thorough))
            return Listed([])

        make(FakeBench(speeds({}), noise=STILL), search).run(quiet)
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
        broken = [settings for _, settings in SPACES["safe"].moves(OWN, far=True) if settings != FASTER][:5]
        bench = FakeBench(speeds({FASTER: 1.5}), fate=lambda chosen: fate if chosen in broken else None, noise=STILL)
        tuning = make(bench, listed(safe=[*broken, FASTER])).run(quiet)
        assert tuning.results(LEVELS)["safe"].settings == FASTER
        assert [o.outcome for o in tuning.history if not o.outcome.measured] == [fate] * 5

    def test_of_everything_keep_the_baseline(self) -> None:
        bench = FakeBench(speeds({}), fate=lambda _: Crashed("SIGSEGV"))
        results = make(bench, wandering(0)).run(quiet).results(LEVELS)
        assert all(result.settings == OWN for result in results.values())
        assert bench.contests == [], "there is nothing to prove"

    def test_the_search_hears_of_them(self) -> None:
        search = Listed([FAST, FASTER])
        bench = FakeBench(speeds({}), fate=lambda chosen: Crashed("no") if chosen == FAST else None)
        make(bench, lambda space, start, history, thorough: search).run(quiet)
        assert [outcome.kind for outcome in search.told] == ["completed", "crashed", "completed"], (
            "first the baseline again"
        )

    def test_a_contender_that_dies_in_the_proof_is_not_written(self) -> None:
        bench = FakeBench(speeds({FASTER: 1.5, LOW: 2.0}), noise=STILL, dead=frozenset({"amp"}))
        results = make(bench, listed(safe=[FASTER], amp=[LOW])).run(quiet).results(LEVELS)
        assert results["safe"].settings == results["amp"].settings == FASTER
        assert results["amp"].note == UNTRIED

    def test_a_baseline_that_dies_in_the_proof_proves_nothing(self) -> None:
        bench = FakeBench(speeds({FASTER: 1.5}), noise=STILL, dead=frozenset({BASELINE}))
        results = make(bench, listed(safe=[FASTER])).run(quiet).results(LEVELS)
        assert results["safe"].settings == OWN


class TestDeadline:
    @settings(max_examples=60, deadline=None)
    @given(budget=st.floats(1.0, 90.0), trial=st.floats(0.1, 12.0), seed=st.integers(0, 99))
    def test_is_passed_by_one_trial_at_most(self, budget: float, trial: float, seed: int) -> None:
        bench = FakeBench(machines.conv().rate, seed, trial=trial)
        end = bench.now + budget
        make(bench, wandering(seed, count=40), budget).run(quiet)
        assert bench.now <= end + trial

    def test_no_time_at_all_keeps_the_baseline(self) -> None:
        bench = FakeBench(speeds({FASTER: 2.0}))
        tuning = make(bench, listed(safe=[FASTER]), budget=1.5).run(quiet)
        assert bench.measured == []
        assert all(result.settings == OWN for result in tuning.results(LEVELS).values())

    @pytest.mark.parametrize("budget", [20.0, 40.0, 80.0])
    def test_time_is_kept_back_for_the_proof(self, budget: float) -> None:
        """However much there is to try, what was found is proven."""
        many = [settings for _, settings in SPACES["safe"].moves(FASTER, far=True)] * 9
        bench = FakeBench(speeds({FASTER: 2.0}), noise=STILL)
        results = make(bench, listed(safe=[FASTER, *many], amp=many, max=many), budget).run(quiet).results(LEVELS)
        assert results["safe"].settings == FASTER
        assert results["safe"].proven

    def test_levels_share_the_searching_time(self) -> None:
        many = [settings for _, settings in SPACES["safe"].moves(OWN, far=True)] * 9
        bench = FakeBench(speeds({}))
        tuning = make(bench, listed(safe=many, amp=many, max=many), budget=200.0).run(quiet)
        counts = [sum(o.level == level for o in tuning.history) for level in LEVELS]
        assert counts[0] > max(counts[1:])
        assert min(counts) > 0

    def test_a_level_that_ends_early_leaves_its_time_to_the_next(self) -> None:
        many = [settings for _, settings in SPACES["safe"].moves(OWN, far=True)] * 9

        def trials(safe: Sequence[Settings]) -> int:
            tuning = make(FakeBench(speeds({})), listed(safe=safe, amp=many), budget=60.0).run(quiet)
            return sum(o.level == "amp" for o in tuning.history)

        assert trials(safe=[]) > trials(safe=many)


class TestProof:
    def test_a_clear_answer_takes_the_first_look_only(self) -> None:
        bench = FakeBench(speeds({FASTER: 1.5}), noise=STILL)
        tuning = make(bench, listed(safe=[FASTER])).run(quiet)
        assert bench.contests == [{BASELINE: OWN, "safe": FASTER}] * FIRST
        assert len(tuning.rounds) == FIRST * ROUNDS

    def test_an_open_one_is_extended_once(self) -> None:
        bench = FakeBench(speeds({FASTER: 1.03}), noise=(0.0, 0.05, 0.05))
        tuning = make(bench, listed(safe=[FASTER])).run(quiet)
        assert len(bench.contests) == max(LOOKS)
        assert len({turn.generation for turn in tuning.rounds}) == max(LOOKS)

    def test_the_baselines_rate_is_that_of_the_proof(self) -> None:
        bench = FakeBench(speeds({FASTER: 1.5}), noise=STILL)
        tuner = make(bench, listed(safe=[FASTER]), history=[Observation(OWN, completed(500.0), "safe")])
        assert tuner.tuning.baseline_rate == pytest.approx(500.0)
        assert tuner.run(quiet).baseline_rate == pytest.approx(1000.0, rel=0.01)


class TestRefusedPrecision:
    @pytest.mark.parametrize("fate", [NotApplied("precision: autocast stays off"), WrongNumbers("NaN")])
    def test_the_answer_says_why_no_other_precision_ran(self, fate: Outcome) -> None:
        bench = FakeBench(
            speeds({FASTER: 1.5}), noise=STILL, fate=lambda chosen: fate if chosen.precision == "bf16" else None
        )
        results = make(bench, listed(safe=[FASTER], amp=[LOW])).run(quiet).results(LEVELS)
        assert results["amp"].settings == FASTER
        assert results["amp"].note == f"no bf16: {fate.reason}"

    def test_one_that_ran_is_judged_by_its_speed(self) -> None:
        other = LOW.but(num_workers=2)
        bench = FakeBench(
            speeds({FASTER: 1.5, LOW: 1.1}), noise=STILL, fate=lambda chosen: Crashed("no") if chosen == other else None
        )
        results = make(bench, listed(safe=[FASTER], amp=[LOW, other])).run(quiet).results(LEVELS)
        assert results["amp"].note == SAME["amp"]


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
        results = make(bench, listed(safe=[FAST, FASTER])).run(quiet).results(LEVELS)
        assert set(bench.contests[0].values()) == {OWN, FAST, FASTER}
        assert results["safe"].settings == winner

    def test_what_chose_does_not_prove(self) -> None:
        bench = self.bench(FASTER)
        tuning = make(bench, listed(safe=[FAST, FASTER])).run(quiet)
        assert all(set(turn.rates) == {BASELINE, "safe"} for turn in tuning.rounds)
        assert len(bench.contests) == 1 + FIRST

    def test_no_race_where_one_is_clearly_ahead(self) -> None:
        bench = FakeBench(speeds({FAST: 1.2, FASTER: 1.5}), noise=STILL)
        make(bench, listed(safe=[FAST, FASTER])).run(quiet)
        assert all(BASELINE in contest for contest in bench.contests)

    def test_never_takes_the_time_of_the_first_look(self) -> None:
        """Whatever the budget: where finalists raced, enough generations follow to prove what won."""
        raced = []
        for budget in range(6, 60, 2):
            bench = self.bench(FASTER)
            tuning = make(bench, listed(safe=[FAST, FASTER]), budget=float(budget)).run(quiet)
            race = bool(bench.contests) and BASELINE not in bench.contests[0]
            raced.append(race)
            if race:
                assert len({turn.generation for turn in tuning.rounds}) >= 2, budget
        assert raced == sorted(raced), "more time never takes the race away"
        assert True in raced
        assert False in raced

    def test_of_equals_the_simplest_is_chosen(self) -> None:
        """What does not matter stays as the user has it, though luck measured it a hair faster."""
        simple, complicated = FAST, FASTER
        bench = FakeBench(speeds({simple: 1.5, complicated: 1.505}), noise=(0.0, 0.0, 0.0), interrupt_at=(None, 1))
        tuner = make(bench, listed(safe=[complicated, simple]))
        with pytest.raises(Interrupted):
            tuner.run(quiet)
        assert tuner.tuning.chosen["safe"] == simple


class TestInterruption:
    def test_in_the_proof_gives_what_was_chosen(self) -> None:
        bench = FakeBench(speeds({FASTER: 1.5, LOW: 2.0}), noise=STILL, interrupt_at=(None, 2))
        tuner = make(bench, listed(safe=[FASTER], amp=[LOW]))
        with pytest.raises(Interrupted):
            tuner.run(quiet)
        results = tuner.tuning.partial_results(LEVELS)
        assert [results[level].settings for level in LEVELS] == [FASTER, LOW, LOW]
        assert not any(result.proven or result.speedup.gain for result in results.values())
        assert [result.speedup.value for result in results.values()] == pytest.approx([1.5, 2.0, 2.0], rel=0.03)
        assert results["safe"].note == "interrupted before the proof"

    def test_in_the_search_gives_the_best_so_far(self) -> None:
        bench = FakeBench(speeds({FAST: 1.3, FASTER: 1.5}), noise=STILL, interrupt_at=(4, None))
        tuner = make(bench, listed(safe=[FAST, FASTER, LOW]))
        with pytest.raises(Interrupted):
            tuner.run(quiet)
        results = tuner.tuning.partial_results(LEVELS)
        assert [results[level].settings for level in LEVELS] == [FASTER] * 3

    @pytest.mark.parametrize("trial", [1, 2, 5])
    def test_at_any_trial_gives_an_answer_for_every_level(self, trial: int) -> None:
        bench = FakeBench(speeds({}), interrupt_at=(trial, None))
        tuner = make(bench, wandering(0))
        with pytest.raises(Interrupted):
            tuner.run(quiet)
        results = tuner.tuning.partial_results(LEVELS)
        assert list(results) == list(LEVELS)
        assert len(tuner.tuning.history) == trial
        assert all(result.rate > 0 for result in results.values())

    def test_before_anything_was_measured_is_the_baseline(self) -> None:
        result = Tuning(OWN).partial_results(("safe",))["safe"]
        assert (result.settings, result.rate, result.speedup.value) == (OWN, 0.0, 1.0)


class TestItemsPerSample:
    def test_counts_what_the_task_counts(self) -> None:
        blocks = (Block(items=4 * 16 * 128, seconds=1.0, steps=4), Block(items=2 * 16 * 128, seconds=0.5, steps=2))
        outcome = Completed(measurement=Measurement(blocks))
        failed = Observation(Settings(batch_size=8), Crashed("x"), "safe")
        assert items_per_sample([failed, Observation(Settings(batch_size=16), outcome, "safe")]) == 128
        assert items_per_sample([failed]) == 1.0


class TestRepeats:
    def test_the_baseline_is_measured_again_every_few_trials(self) -> None:
        machine = machines.conv()
        spaces = {level: machine.space(level) for level in LEVELS}
        bench = FakeBench(machine.rate, baseline=machine.context.baseline)
        tuning = make(bench, staged, spaces=spaces, finalists=posterior_finalists).run(quiet)
        places = [k for k, o in enumerate(tuning.history) if o.settings == machine.context.baseline]
        assert all(later - earlier <= REPEAT_EVERY + 1 for earlier, later in pairwise([*places, len(tuning.history)]))


class TestResuming:
    def test_nothing_is_measured_twice(self) -> None:
        machine = machines.conv()
        spaces = {level: machine.space(level) for level in LEVELS}
        first = FakeBench(machine.rate, baseline=machine.context.baseline, interrupt_at=(6, None))
        tuner = make(first, staged, spaces=spaces, finalists=posterior_finalists)
        with pytest.raises(Interrupted):
            tuner.run(quiet)
        before = list(tuner.tuning.history)
        again = FakeBench(machine.rate, seed=1, baseline=machine.context.baseline)
        resumed = make(again, staged, history=before, spaces=spaces, finalists=posterior_finalists)
        tuning = resumed.run(quiet)
        repeated = {o.settings for o in before} & set(again.measured)
        assert repeated <= {machine.context.baseline}, "only the baseline is repeated, on purpose"
        assert tuning.history[: len(before)] == before

    def test_what_was_found_before_is_known(self) -> None:
        history = [Observation(OWN, completed(1000.0), "safe"), Observation(FASTER, completed(1500.0), "safe")]
        bench = FakeBench(speeds({FASTER: 1.5}), noise=STILL)
        results = make(bench, listed(), history=history).run(quiet).results(LEVELS)
        assert bench.measured == []
        assert results["safe"].settings == FASTER
        assert results["safe"].proven


class TestBooking:
    def test_repeats_are_averaged_and_failures_keep_the_estimate(self) -> None:
        tuning = Tuning(OWN)
        for outcome in (completed(100.0), completed(300.0), Crashed("no")):
            tuning.book(Observation(OWN, outcome, "safe"))
        assert tuning.baseline_rate == pytest.approx(200.0)
        assert len(tuning.history) == 3

    def test_progress_is_told_in_the_views_own_words(self) -> None:
        progress = Progress(stage="", baseline=OWN, unit="samples", budget=60.0)
        stages = []

        def observe(**changes: Any) -> None:
            nonlocal progress
            progress = replace(progress, **changes)
            stages.append(progress.stage)

        bench = FakeBench(
            speeds({FAST: 1.5, FASTER: 1.5}),
            noise=STILL,
            fate=lambda chosen: Crashed("SIGSEGV") if chosen == LOW else None,
        )
        make(bench, listed(safe=[FAST, FASTER, LOW])).run(observe)
        assert list(dict.fromkeys(stages)) == [
            "searching: safe",
            "searching: amp",
            "searching: max",
            "race between finalists",
            "proof",
        ]
        assert (progress.trials, progress.failures, progress.last_failure) == (5, 1, "SIGSEGV")
        assert progress.best in (FAST, FASTER)
        assert progress.rounds == {BASELINE: FIRST * ROUNDS, "safe": FIRST * ROUNDS}


class TestSettlingTheBaseline:
    WANTED = OWN.but(num_workers=2, batch_size=32)

    def settle(
        self, fate: Callable[[Settings], Outcome | None], history: list[Observation] | None = None
    ) -> tuple[Settings, FakeBench, list[str], list[Observation]]:
        """The baseline, and what happened on the way."""
        bench = FakeBench(speeds({}), fate=fate)
        warnings: list[str] = []
        recorded: list[Observation] = []
        known = history if history is not None else []
        found = settle_baseline(bench, self.WANTED, known, recorded.append, math.inf, warnings)
        return found, bench, warnings, recorded

    def test_what_runs_is_the_users_own(self) -> None:
        found, bench, warnings, recorded = self.settle(lambda _: None)
        assert found == bench.baseline == self.WANTED
        assert bench.measured == [o.settings for o in recorded] == [self.WANTED]
        assert warnings == []

    def test_out_of_memory_falls_back_to_no_workers(self) -> None:
        found, bench, warnings, recorded = self.settle(
            lambda s: OutOfMemory("host memory ran out") if s.num_workers else None
        )
        assert found.num_workers == 0
        assert found.global_batch == self.WANTED.global_batch
        assert bench.baseline == found
        assert warnings == [
            "your own settings do not fit this machine: host memory ran out",
            "the baseline is your settings without loader workers",
        ]
        assert recorded[-1].settings == found
        assert recorded[-1].outcome.measured

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
        before = [Observation(self.WANTED, completed(900.0), "safe")]
        found, bench, _, recorded = self.settle(lambda _: None, before)
        assert found == self.WANTED
        assert bench.measured == recorded == []
        assert bench.remembered == [before[0].outcome]
        assert len(before) == 1

    def test_a_resumed_run_knows_what_did_not_fit(self) -> None:
        before = [Observation(self.WANTED, OutOfMemory("full"), "safe")]
        found, bench, warnings, _ = self.settle(lambda _: None, before)
        assert bench.measured == [found]
        assert found.num_workers == 0
        assert len(warnings) == 2
