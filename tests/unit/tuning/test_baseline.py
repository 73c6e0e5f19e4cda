"""The baseline is the user's own settings; the first compile decides how long a run is."""

import math
from dataclasses import replace
from typing import Any

import pytest

from autotune.errors import AutotuneError, NothingUsable, UserCodeError
from autotune.knobs.knob import Context
from autotune.knobs.level import LEVELS
from autotune.knobs.settings import Settings
from autotune.knobs.space import Space, build
from autotune.search.history import Trial
from autotune.stats.measurement import Block, Measurement
from autotune.stats.outcome import (
    BUDGET_OVER,
    Completed,
    Crashed,
    NotApplied,
    Outcome,
    OutOfMemory,
    TimedOut,
    WrongNumbers,
)
from autotune.tuning.baseline import compile_once, of_own_settings
from tests.doubles.fake_bench import empty
from tests.doubles.simulation import machines


@pytest.mark.parametrize(
    ("outcome", "error", "words"),
    [
        (OutOfMemory("host memory ran out", "DefaultCPUAllocator"), NothingUsable, "fewer loader workers .*\nDefaultC"),
        (Crashed("NameError: name 'Resnet' is not defined", "File x, line 3"), UserCodeError, "name 'Resnet'"),
        (WrongNumbers("the loss became NaN"), UserCodeError, "NaN"),
        (TimedOut("no progress while starting", "in compute_loss", "starting"), UserCodeError, "no progress"),
        (TimedOut("too late", phase=BUDGET_OVER), NothingUsable, "give a longer --budget"),
    ],
    ids=["out of memory", "N01: the user's own error", "NaN", "hung", "no time"],
)
def test_if_own_settings_do_not_run_tuning_ends(outcome: Outcome, error: type[AutotuneError], words: str) -> None:
    with pytest.raises(error, match=words) as ended:
        of_own_settings(outcome)
    assert getattr(ended.value, "traceback", outcome.detail) == outcome.detail


GPUS = replace(machines.big().context, budget_seconds=60.0, compile_seconds=None)
CPUS = replace(machines.transformer().context, budget_seconds=600.0, train_seconds=36_000.0, compile_seconds=None)


def compiled(rate: float, first: float) -> Outcome:
    block = Block(round(rate), 1.0, 10)
    return Completed(measurement=Measurement((block,), first_step_seconds=first), start_seconds=first + 1)


def compiled_once(
    context: Context, outcome: Outcome, given: float | None = None, *known: Trial
) -> tuple[Context, list[tuple[Settings, float]], list[str]]:
    """``compile_once`` on a machine on which the first compiled trial ends in ``outcome``: trials with their seconds,
    and stages."""
    trials: list[tuple[Settings, float]] = []
    events: list[dict[str, Any]] = []
    state = empty(context.baseline, observe=lambda **changes: events.append(changes))

    def measure(settings: Settings, give_up_below: float, deadline: float) -> Outcome:
        trials.append((settings, deadline - state.schedule.clock()))
        return outcome

    state.bench.measure = measure
    state.add(Trial(context.baseline, compiled(1000.0, 0.1), "safe"), *known)

    def spaces(known: Context) -> dict[str, Space]:
        return {level: build(known, level) for level in LEVELS}

    state.spaces = spaces(context)
    found = compile_once(state, context, spaces, given)
    assert len(state.history) == 1 + len(known) + len(trials)
    return found, trials, [event["stage"] for event in events]


def test_on_gpus_it_comes_by_default_and_the_run_grows_with_what_it_took() -> None:
    found, trials, stages = compiled_once(GPUS, compiled(1500.0, 20.0))
    assert trials == [(GPUS.baseline.but(compile="reduce-overhead"), 150.0)]
    assert "up to 150 s; the length of the run follows" in stages[-1]
    assert (found.compile_seconds, found.budget_seconds) == (20.0, 60 + 20 * 7)
    assert build(found, "safe").values["compile"] == ("off", "reduce-overhead", "default")


@pytest.mark.parametrize(
    ("outcome", "budget"),
    [
        (compiled(500.0, 20.0), 80.0),
        (compiled(1500.0, 140.0), 600.0),
        (NotApplied("compile: no Triton", knob="compile"), 60.0),
        (TimedOut(), 210.0),
    ],
    ids=["slower", "capped", "failed", "too long"],
)
def test_a_compile_that_does_not_pay_only_costs_its_own_time(outcome: Outcome, budget: float) -> None:
    found = compiled_once(GPUS, outcome)[0]
    assert found.budget_seconds == pytest.approx(budget, abs=1.0)
    tried = build(found, "safe").values["compile"] != ("off",)
    assert tried == isinstance(outcome, Completed), "what does not compile at all is not tried in other modes"


def test_a_budget_of_the_users_stays_and_decides_whether_compile_competes() -> None:
    found, trials, _ = compiled_once(GPUS, compiled(1500.0, 25.0), given=60.0)
    assert trials[0][1] == 24.0
    assert found.budget_seconds == 60.0
    assert "took 25 s" in {each.value: each.reason for each in build(found, "safe").left_out}["default"]
    found = compiled_once(GPUS, TimedOut(), given=60.0)[0]
    assert found.compile_seconds == math.inf
    assert build(found, "safe").values["compile"] == ("off",)


def test_on_cpus_it_comes_with_a_training_time_only() -> None:
    found, trials, _ = compiled_once(CPUS, compiled(1100.0, 30.0))
    assert [settings.compile for settings, _ in trials] == ["default"]
    assert found.budget_seconds == 600.0
    plain = replace(CPUS, train_seconds=None)
    assert not compiled_once(plain, compiled(1100.0, 30.0))[1]


def test_a_run_that_goes_on_does_not_compile_again() -> None:
    known = Trial(GPUS.baseline.but(compile="reduce-overhead"), compiled(1500.0, 20.0), "safe")
    found, trials, _ = compiled_once(GPUS, TimedOut(), None, known)
    assert not trials
    assert found.compile_seconds == 20.0


def test_the_fastest_so_far_is_compiled_and_nothing_that_leaves_no_time_for_a_proof() -> None:
    fast = GPUS.baseline.but(precision="bf16", optimizer_impl="fused")
    known = Trial(fast, compiled(2000.0, 0.1), "amp")
    assert compiled_once(GPUS, compiled(2500.0, 20.0), None, known)[1][0][0] == fast.but(compile="reduce-overhead")
    found, trials, _ = compiled_once(GPUS, compiled(2500.0, 20.0), 5.0, known)
    assert not trials
    assert (
        "before the model was compiled"
        in {each.value: each.reason for each in build(found, "safe").left_out}["default"]
    )
