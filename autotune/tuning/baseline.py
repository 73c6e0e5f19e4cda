"""The first phase: the user's own settings must run; the model is compiled once."""

from __future__ import annotations

import math
from dataclasses import replace

from autotune.errors import NothingUsable, UserCodeError
from autotune.knobs.compile import COMPILES_IN_A_RUN
from autotune.knobs.knob import Context
from autotune.knobs.space import Space
from autotune.stats.outcome import BUDGET_OVER, Completed, NotApplied, Outcome, OutOfMemory, TimedOut
from autotune.tuning.options import MAX_TRAINING_BUDGET
from autotune.tuning.state import RunState

FIRST_COMPILE_SECONDS, FIRST_COMPILE_SHARE = 150.0, 0.4
"""Longest that the first compile may take: in seconds, and as a share of a budget that the user gave."""
NO_SLOWER = 0.95
"""A compiled model below this share of the baseline's rate is not worth more time."""


def of_own_settings(outcome: Outcome) -> Completed:
    """Return the outcome of the trial of the user's own settings, against which every gain is measured.

    Raises:
        UserCodeError: the user's code failed; carries its own traceback.
        NothingUsable: it ran out of memory, or the budget is over.
    """
    if isinstance(outcome, Completed):
        return outcome
    if isinstance(outcome, TimedOut) and outcome.phase == BUDGET_OVER:
        raise NothingUsable("the budget ended before your own settings were measured: give a longer --budget")
    if isinstance(outcome, OutOfMemory):
        advice = "Take fewer loader workers or a smaller batch, or allow more memory"
        raise NothingUsable(f"your own settings do not fit: {outcome.reason}. {advice}\n{outcome.detail}".strip())
    raise UserCodeError(f"the task failed under your own settings: {outcome.reason}", outcome.detail)


def compile_once(state: RunState, context: Context, space: Space, given: float | None) -> Context:
    """Compile the model once, if compile is tried.

    Args:
        state: what is known; the trial is added unless an earlier run has made it.
        context: of the run, without the first compile.
        space: of the lowest level.
        given: the budget that the user gave, in seconds.

    Returns:
        ``context`` with the time of the first compile, and with a longer budget if the user gave none.
    """
    modes = tuple(context.device.compile_gain) if state.baseline.compile == "off" else ()
    settings = next((each for mode in modes if (each := state.baseline.but(compile=mode)) in space), None)
    if settings is None:
        return context
    limit = FIRST_COMPILE_SECONDS if given is None else FIRST_COMPILE_SHARE * given
    trial, began = next((each for each in state.history if each.settings == settings), None), state.schedule.clock()
    if trial is None:
        follows = "" if given is not None else "; the length of the run follows what it takes"
        stage = f"compiling the model once ({settings.compile}), up to {limit:.0f} s{follows}"
        state.observe(stage=stage, trying=settings)
        trial = state.measure(settings, space.level, deadline=state.schedule.clock() + limit)
    too_long = math.inf if isinstance(trial.outcome, TimedOut) else None
    took = trial.measurement.first_step_seconds if trial.measurement is not None else too_long
    failed = isinstance(trial.outcome, NotApplied) and trial.outcome.knob == "compile"
    budget = context.budget_seconds
    if given is None:
        worth = trial.rate is not None and trial.rate >= NO_SLOWER * state.estimate(state.baseline)
        spent = state.schedule.clock() - began if took is None else min(took, limit)
        longer = budget + spent * (1 + COMPILES_IN_A_RUN if worth else 1)
        budget = max(budget, min(MAX_TRAINING_BUDGET, longer))
    reason = trial.outcome.reason.removeprefix("compile: ") if failed else None
    return replace(context, compile_seconds=took, budget_seconds=budget, compile_failure=reason)
