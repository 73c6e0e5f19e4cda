"""The project's own search: what any search must do, and how close to the optimum it comes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from optuna.samplers import BaseSampler
from optuna.trial import TrialState

from autotune.errors import UsageError, UserCodeError
from autotune.knobs.settings import Settings
from autotune.knobs.space import Space, build
from autotune.search import planner
from autotune.search.history import Trial
from autotune.search.planner import SMALL, Forbidden, Proposal, candidates, combinations, rank
from autotune.search.sampler import LevelSearch, searches_of
from autotune.stats.measurement import Block, Measurement
from autotune.stats.outcome import Completed, Crashed, NotApplied, Outcome, OutOfMemory, TimedOut, WrongNumbers
from tests.doubles.simulation import machines
from tests.doubles.simulation.simulator import Bench, Machine


class Stubborn(BaseSampler):
    """A user's own sampler that takes no seed, and proposes the last of all values each time."""

    def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
        return {}

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, Any]:
        return {}

    def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
        return param_distribution.choices[-1]


SAMPLERS: tuple[Any, ...] = (None, "random", "tpe", Stubborn)


def begun(space: Space, seed: int = 0, *, sampler: Any = None, thorough: bool = False, history: Sequence[Trial] = ()):
    return searches_of(sampler, seed)(space, space.context.baseline, thorough, history)


def drive(
    search: LevelSearch, level: str, run: Callable[[Settings], Outcome], trials: int
) -> Iterator[tuple[Proposal, Trial]]:
    for _ in range(trials):
        if (proposal := search.ask()) is None:
            return
        trial = Trial(proposal.settings, run(proposal.settings), level)
        search.tell(trial)
        yield proposal, trial


def driven(machine: Machine, level: str, trials: int, seed: int = 0, **options: Any) -> list[tuple[Proposal, Trial]]:
    return list(drive(begun(machine.space(level), seed, **options), level, Bench(machine, seed=seed).run, trials))


class TestContract:
    @pytest.mark.parametrize("sampler", SAMPLERS)
    @pytest.mark.parametrize("make", [*machines.SMALL, machines.big])
    def test_starts_with_the_baseline_stays_feasible_and_repeats_nothing(self, make, sampler) -> None:
        machine = make()
        space = machine.space("amp")
        tried = [proposal.settings for proposal, _ in driven(machine, "amp", 15, sampler=sampler)]
        assert tried[0] == machine.context.baseline
        assert all(settings in space for settings in tried)
        assert len(set(tried)) == len(tried) > 4

    @pytest.mark.parametrize("sampler", SAMPLERS)
    @pytest.mark.parametrize("level", ["safe", "max"])
    def test_same_seed_same_search(self, level: str, sampler: Any) -> None:
        first, second = (driven(machines.images(), level, 12, seed=3, sampler=sampler) for _ in range(2))
        assert first == second

    @pytest.mark.parametrize("sampler", SAMPLERS)
    def test_a_small_space_is_tried_to_its_end(self, sampler: Any) -> None:
        machine = machines.images()
        fixed = {"num_workers": 0, "optimizer_impl": "default", "interop_threads": 2}
        space = build(machine.context, "safe", fixed | {"binding": "none", "malloc": "default"})
        everything = set(space.enumerate())
        assert len(everything) == 12
        tried = [p.settings for p, _ in drive(begun(space, sampler=sampler), "safe", Bench(machine).run, 30)]
        assert len(tried) == len(set(tried)) <= 12
        assert set(tried) <= everything
        assert sampler is None or set(tried) == everything, "only the project's own search expects gains"

    @pytest.mark.parametrize("sampler", SAMPLERS)
    def test_out_of_memory_is_not_provoked_again(self, sampler: Any) -> None:
        """A device holds the baseline's batch and not twice as much; the more samples in flight the faster."""
        machine = machines.big()
        cliff = replace(machine, work=replace(machine.work, memory=(0.28 * 2**30, 4 * 2**30)))
        failed: list[Settings] = []
        done = driven(cliff, "max", 30, seed=2, sampler=sampler)
        kinds = ("precision", "compile", "channels_last")
        for _, trial in done:
            assert not any(
                trial.settings.batch_size >= other.batch_size
                and all(getattr(trial.settings, kind) == getattr(other, kind) for kind in kinds)
                for other in failed
            )
            if isinstance(trial.outcome, OutOfMemory):
                failed.append(trial.settings)
        assert failed, "the cliff was never met: the test shows nothing"
        assert sampler is not None or len(failed) <= 0.2 * len(done) + 1

    @pytest.mark.parametrize("cut", [1, 4, 9])
    def test_resumes_exactly(self, cut: int) -> None:
        done = driven(machines.conv(), "amp", 10, seed=5)
        history = [trial for _, trial in done]
        assert begun(machines.conv().space("amp"), 5, history=history[:cut]).ask() == done[cut][0]

    def test_clear_losers_may_end_early_but_the_baseline_never(self) -> None:
        done = driven(machines.conv(), "safe", 6)
        assert done[0][0].give_up_below == 0.0
        best = max(trial.rate or 0.0 for _, trial in done)
        assert all(0 < proposal.give_up_below < best for proposal, _ in done[1:])

    def test_a_broken_baseline_ends_the_search(self) -> None:
        space = machines.conv().space()
        failed = Trial(space.context.baseline, OutOfMemory(reason="host memory ran out"), "safe")
        assert begun(space, history=[failed]).ask() is None


def test_what_is_not_measured_is_told_with_its_value_and_reason() -> None:
    told: list[tuple[str, bool]] = []

    class Telling(Stubborn):
        def after_trial(self, study: Any, trial: Any, state: Any, values: Any) -> None:
            assert state == TrialState.COMPLETE
            told.append((trial.user_attrs.get("reason", "measured"), values[0] > 0))

    driven(machines.images(), "amp", 5, sampler=Telling)
    reasons = [reason for reason, _ in told]
    assert len(reasons) == 4, "the baseline comes before the sampler"
    assert all((reason in ("measured", "tried before")) == good for reason, good in told)
    assert any(reason != "measured" for reason in reasons)


def test_a_sampler_that_fails_shows_its_own_traceback() -> None:
    class Broken(Stubborn):
        def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
            raise KeyError("mine")

    with pytest.raises(UserCodeError, match="mine") as failed:
        driven(machines.images(), "amp", 5, sampler=Broken)
    assert "sample_independent" in failed.value.traceback


NAMES = "nowhere:Sampler", "optuna.samplers:None", "json:JSONDecoder", "optuna.samplers:GridSampler"
SAID = "nowhere", "None", "BaseS", "search_space"


@pytest.mark.parametrize(("name", "said"), [*zip(NAMES, SAID, strict=True)])
def test_a_sampler_that_cannot_be_found(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        searches_of(name, 0)


def test_a_choice_that_always_crashes_is_given_up() -> None:
    machine = machines.images()
    bench = Bench(machine)

    def run(settings: Settings) -> Outcome:
        return Crashed(reason="dataset uses the device") if settings.num_workers else bench.run(settings)

    history = [trial for _, trial in drive(begun(machine.space()), "safe", run, 20)]
    assert 1 <= sum(isinstance(trial.outcome, Crashed) for trial in history) <= 5
    assert rank(history, machine.space(), 1)[0].num_workers == 0


def test_a_thorough_search_goes_on_if_expected_gains_are_small() -> None:
    short, long = (len(driven(machines.default_best(), "safe", 60, 1, thorough=each)) for each in (False, True))
    assert long > short


def test_fixed_knobs_are_searched_around() -> None:
    """The baseline itself has none of the fixed values."""
    machine = machines.conv()
    space = build(machine.context, "safe", {"processes": 2, "threads": 1, "num_workers": 1, "interop_threads": 1})
    tried = [trial.settings for _, trial in drive(begun(space), "safe", Bench(machine).run, 8)][1:]
    assert {(s.processes, s.threads, s.num_workers, s.interop_threads) for s in tried} == {(2, 1, 1, 1)}


def test_few_settings_are_weighed_where_millions_compete(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a proposal costs is what it looks at: no clock is asked."""
    machine = machines.big(train_seconds=36_000.0)
    assert combinations(machine.space("max")) > 1_000_000
    weighed: list[int] = []

    def counted(space: Space, around: Sequence[Settings], rng: np.random.Generator) -> list[Settings]:
        pool = candidates(space, around, rng)
        weighed.append(len(pool))
        return pool

    monkeypatch.setattr(planner, "candidates", counted)
    driven(machine, "max", 16)
    assert len(weighed) > 8
    assert max(weighed) <= SMALL


def test_the_ranking_shrinks_a_lucky_trial() -> None:
    """A single lucky trial does not lead over settings that repeats show to be better."""
    machine = machines.conv()
    space, baseline = machine.space(), machine.context.baseline
    bench = Bench(machine, noise=0.0, drift=0.0)
    lucky, steady = baseline.but(interop_threads=1), machine.best()
    history = [Trial(s, bench.run(s), "safe") for s in (baseline, steady, steady, lucky)]
    assert rank(history, space, 5)[0] == steady
    assert baseline not in rank(history, space, 5)
    assert rank(history[:1], space, 5) == ()
    assert rank([], space, 5) == ()


BASE = Settings(threads=2, interop_threads=2, batch_size=64)
FINE = Completed(measurement=Measurement((Block(10, 1.0, 1),)))


def forbidden(*trials: tuple[Settings, Outcome]) -> Forbidden:
    return Forbidden([Trial(settings, outcome, "safe") for settings, outcome in trials])


@pytest.mark.parametrize(
    ("settings", "outcome", "other", "expected"),
    [
        (BASE.but(batch_size=128), OutOfMemory(where="device"), BASE.but(batch_size=256), True),
        (BASE.but(batch_size=128), OutOfMemory(where="device"), BASE.but(batch_size=128, threads=1), True),
        (BASE.but(batch_size=128), OutOfMemory(where="device"), BASE.but(batch_size=96), False),
        (BASE.but(batch_size=128), OutOfMemory(where="device"), BASE.but(batch_size=128, precision="bf16"), False),
        (BASE.but(batch_size=128), OutOfMemory(where="device"), BASE.but(batch_size=128, channels_last=True), False),
        (BASE.but(batch_size=128), OutOfMemory(where="host"), BASE.but(batch_size=128, malloc="keep"), False),
        (BASE.but(num_workers=2), OutOfMemory(where="host"), BASE.but(num_workers=4), True),
        (BASE.but(num_workers=2), OutOfMemory(where="host"), BASE.but(num_workers=1), False),
        (BASE.but(batch_size=128), OutOfMemory(where="host"), BASE.but(batch_size=128, num_workers=1), True),
        (BASE.but(num_workers=2), OutOfMemory(where="shm"), BASE.but(num_workers=1, prefetch_factor=8), True),
        (BASE.but(num_workers=2), OutOfMemory(where="shm"), BASE.but(num_workers=1), False),
        (BASE.but(num_workers=2), OutOfMemory(where="shm"), BASE.but(num_workers=2, precision="bf16"), True),
        (BASE.but(precision="bf16"), WrongNumbers(), BASE.but(precision="bf16", threads=1), True),
        (BASE.but(precision="bf16"), WrongNumbers(), BASE.but(threads=1), False),
        (BASE.but(compile="default"), WrongNumbers(), BASE.but(compile="default", threads=1), True),
        (BASE.but(precision="bf16", compile="default"), WrongNumbers(), BASE.but(precision="bf16"), False),
        (BASE.but(allocator="jemalloc"), NotApplied(knob="allocator"), BASE.but(allocator="jemalloc", threads=1), True),
        (BASE.but(num_workers=1), Crashed(), BASE.but(num_workers=1, threads=1), True),
        (BASE.but(num_workers=1), Crashed(), BASE.but(threads=1), False),
        (BASE.but(compile="default"), TimedOut(), BASE.but(compile="default", threads=1), True),
    ],
)
def test_one_failure(settings, outcome, other, expected):
    assert forbidden((BASE, FINE), (settings, outcome))(other) is expected


def test_a_success_narrows_the_blame():
    failed = BASE.but(channels_last=True, allocator="jemalloc")
    suspects = forbidden((BASE, FINE), (failed, Crashed()))
    assert not suspects(BASE.but(channels_last=True))
    narrowed = forbidden((BASE, FINE), (failed, Crashed()), (BASE.but(channels_last=True), FINE))
    assert narrowed(BASE.but(allocator="jemalloc"))


def test_memory_is_climbed_not_jumped_at():
    avoid = forbidden((BASE, FINE))
    assert not avoid(BASE.but(batch_size=256))
    assert avoid(BASE.but(batch_size=512))
