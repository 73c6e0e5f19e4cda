"""The first compile: what it may take, what it tells, and how long the run is then."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from autotune.knobs.knob import Context
from autotune.knobs.settings import Settings
from autotune.knobs.space import build
from autotune.search.protocol import Observation
from autotune.stats.measurement import Block, Measurement
from autotune.stats.outcome import Completed, NotApplied, Outcome, TimedOut
from autotune.tuning.compiling import compile_once
from autotune.tuning.events import Event, StageStarted
from autotune.tuning.state import RunState
from benchmarks.simulation import machines

GPUS = replace(machines.big().context, budget_seconds=60.0)
CPUS = replace(machines.transformer().context, budget_seconds=600.0, train_seconds=36_000.0)


def completed(rate: float, first: float) -> Outcome:
    block = Block(round(rate), 1.0, 10)
    return Completed(measurement=Measurement((block,), first_step_seconds=first), start_seconds=first + 1)


def compiled_once(
    context: Context, outcome: Outcome, given: float | None = None, known: tuple[Observation, ...] = ()
) -> tuple[Context, RunState, list[tuple[Settings, float]], list[Event]]:
    """``compile_once`` on a machine on which the first compiled trial ends in ``outcome``."""
    first = Observation(context.baseline, completed(1000.0, 0.1), "safe")
    state = RunState.after(context.baseline, [first, *known])
    trials: list[tuple[Settings, float]] = []
    events: list[Event] = []

    def measure(settings: Settings, seconds: float) -> Outcome:
        trials.append((settings, seconds))
        return outcome

    found = compile_once(state, context, build(context, "safe"), given, measure, events.append)
    return found, state, trials, events


def test_on_gpus_it_comes_by_default_and_the_run_grows_with_what_it_took() -> None:
    found, state, trials, events = compiled_once(GPUS, completed(1500.0, 20.0))
    assert trials == [(GPUS.baseline.but(compile="reduce-overhead"), 150.0)]
    assert isinstance(events[-1], StageStarted)
    assert "up to 150 s; the length of the run follows" in events[-1].stage
    assert (found.compile_seconds, found.budget_seconds) == (20.0, 60 + 20 * 7)
    assert build(found, "safe").values["compile"] == ("off", "reduce-overhead", "default", "max-autotune")
    assert state.history[-1].settings.compile == "reduce-overhead"


@pytest.mark.parametrize(
    ("outcome", "budget"),
    [
        (completed(500.0, 20.0), 80.0),
        (completed(1500.0, 140.0), 600.0),
        (NotApplied("compile: no graph"), 210.0),
        (TimedOut(), 210.0),
    ],
    ids=["slower", "capped", "failed", "too long"],
)
def test_a_compile_that_does_not_pay_only_costs_its_own_time(outcome: Outcome, budget: float) -> None:
    assert compiled_once(GPUS, outcome)[0].budget_seconds == budget


def test_a_budget_of_the_users_stays_and_decides_whether_compile_competes() -> None:
    found, _, trials, _ = compiled_once(GPUS, completed(1500.0, 25.0), given=60.0)
    assert trials[0][1] == 24.0
    assert found.budget_seconds == 60.0
    assert "took 25 s" in {each.value: each.reason for each in build(found, "safe").left_out}["default"]
    found = compiled_once(GPUS, TimedOut(), given=60.0)[0]
    assert found.compile_seconds == math.inf
    assert build(found, "safe").values["compile"] == ("off",)


def test_on_cpus_it_comes_with_a_training_time_only() -> None:
    found, _, trials, _ = compiled_once(CPUS, completed(1100.0, 30.0))
    assert [settings.compile for settings, _ in trials] == ["default"]
    assert found.budget_seconds == 600.0
    plain = replace(CPUS, train_seconds=None)
    assert compiled_once(plain, completed(1100.0, 30.0))[0] is plain


def test_a_run_that_goes_on_does_not_compile_again() -> None:
    known = Observation(GPUS.baseline.but(compile="reduce-overhead"), completed(1500.0, 20.0), "safe")
    found, state, trials, _ = compiled_once(GPUS, TimedOut(), known=(known,))
    assert not trials
    assert found.compile_seconds == 20.0
    assert len(state.history) == 2
