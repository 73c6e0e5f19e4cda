"""The project's own search: what any search must do, and how close to the optimum it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from autotune.knobs.settings import Settings
from autotune.knobs.space import Space, build
from autotune.search import planner
from autotune.search.history import Trial
from autotune.search.planner import SMALL, Forbidden, Planner, Proposal, candidates, combinations, rank
from autotune.stats.measurement import Block, Measurement
from autotune.stats.outcome import Completed, Crashed, NotApplied, Outcome, OutOfMemory, TimedOut, WrongNumbers
from benchmarks.simulation import machines
from benchmarks.simulation.simulator import Bench, Machine

STAGES = ("baseline", "design", "model", "again")


def made(space: Space, seed: int = 0, **options: object) -> Planner:
    return Planner(space, space.context.baseline, seed=seed, **options)  # type: ignore[arg-type]


def drive(
    search: Planner, level: str, run: Callable[[Settings], Outcome], trials: int, history: Sequence[Trial] = ()
) -> Iterator[tuple[Proposal, Trial]]:
    """Up to ``trials`` trials after ``history``."""
    seen = list(history)
    while len(seen) < len(history) + trials and (proposal := search.propose(seen)) is not None:
        seen.append(Trial(proposal.settings, run(proposal.settings), level, proposal.stage))
        yield proposal, seen[-1]


def driven(machine: Machine, level: str, trials: int, seed: int = 0, **options: object) -> list[tuple[Proposal, Trial]]:
    bench = Bench(machine, seed=seed)
    return list(drive(made(machine.space(level), seed, **options), level, bench.run, trials))


class TestContract:
    @pytest.mark.parametrize("make", [*machines.SMALL, machines.big])
    def test_starts_with_the_baseline_and_stays_feasible(self, make: Callable[[], Machine]) -> None:
        machine = make()
        space = machine.space("amp")
        proposals = [proposal for proposal, _ in driven(machine, "amp", 15)]
        assert proposals[0].settings == machine.context.baseline
        assert all(proposal.settings in space and proposal.stage in STAGES for proposal in proposals)

    @pytest.mark.parametrize("level", ["safe", "max"])
    def test_same_seed_same_search(self, level: str) -> None:
        first, second = (driven(machines.images(), level, 12, seed=3) for _ in range(2))
        assert first == second

    def test_small_space_each_once(self) -> None:
        machine = machines.images()
        fixed = {"num_workers": 0, "optimizer_impl": "default", "interop_threads": 2}
        space = build(machine.context, "safe", fixed | {"binding": "none", "malloc": "default"})
        everything = set(space.enumerate())
        assert len(everything) == 12
        tried = [p.settings for p, _ in drive(made(space), "safe", Bench(machine).run, 30)]
        assert len(tried) == len(set(tried)) <= 12
        assert set(tried) <= everything

    def test_out_of_memory_is_not_provoked_again(self) -> None:
        """A device holds the baseline's batch and not twice as much; the more samples in flight the faster."""
        machine = machines.big()
        cliff = replace(machine, work=replace(machine.work, memory=(0.28 * 2**30, 4 * 2**30)))
        failed: list[Settings] = []
        done = driven(cliff, "max", 30, seed=2)
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
        assert len(failed) <= 0.2 * len(done) + 1

    @pytest.mark.parametrize("cut", [1, 4, 9])
    def test_resumes_exactly(self, cut: int) -> None:
        done = driven(machines.conv(), "amp", 10, seed=5)
        history = [trial for _, trial in done]
        assert made(machines.conv().space("amp"), 5).propose(history[:cut]) == done[cut][0]

    def test_clear_losers_may_end_early_but_the_baseline_never(self) -> None:
        done = driven(machines.conv(), "safe", 6)
        assert done[0][0].give_up_below == 0.0
        best = max(trial.rate or 0.0 for _, trial in done)
        assert all(0 < proposal.give_up_below < best for proposal, _ in done[1:])

    def test_a_broken_baseline_ends_the_search(self) -> None:
        space = machines.conv().space()
        failed = Trial(space.context.baseline, OutOfMemory(reason="host memory ran out"), "safe")
        assert made(space).propose([failed]) is None


def test_a_choice_that_always_crashes_is_given_up() -> None:
    machine = machines.images()
    bench = Bench(machine)

    def run(settings: Settings) -> Outcome:
        return Crashed(reason="dataset uses the device") if settings.num_workers else bench.run(settings)

    history = [trial for _, trial in drive(made(machine.space()), "safe", run, 20)]
    assert 1 <= sum(isinstance(trial.outcome, Crashed) for trial in history) <= 5
    assert rank(history, machine.space(), 1)[0].num_workers == 0


def test_a_thorough_search_goes_on_if_expected_gains_are_small() -> None:
    short, long = (len(driven(machines.default_best(), "safe", 60, 1, thorough=each)) for each in (False, True))
    assert long > short


def test_fixed_knobs_are_searched_around() -> None:
    """The baseline itself has none of the fixed values."""
    machine = machines.conv()
    space = build(machine.context, "safe", {"processes": 2, "threads": 1, "num_workers": 1, "interop_threads": 1})
    tried = [trial.settings for _, trial in drive(made(space), "safe", Bench(machine).run, 8)][1:]
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
