"""What is measured before the search goes by itself: the user's own settings must run; the model is compiled once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from autotune.errors import NothingUsable, UserCodeError
from autotune.knobs.compile import COMPILES_IN_A_RUN
from autotune.knobs.knob import Context
from autotune.knobs.level import AMP, LOWEST
from autotune.knobs.space import Space
from autotune.search.planner import rank
from autotune.stats.outcome import BUDGET_OVER, Completed, NotApplied, Outcome, OutOfMemory, TimedOut, WrongNumbers
from autotune.tuning.options import MAX_TRAINING_BUDGET
from autotune.tuning.schedule import proof_seconds
from autotune.tuning.state import RunState

FIRST_COMPILE_SECONDS, FIRST_COMPILE_SHARE = 150.0, 0.4
"""Longest that the first compile may take: in seconds, and as a share of a budget that the user gave."""
NO_SLOWER = 0.95
"""A compiled model below this share of the rate without is not worth more time."""
LEAST_COMPILE_SECONDS = 5.0
"""With less left, nothing is compiled."""


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
    reason = outcome.reason
    if isinstance(outcome, WrongNumbers):
        reason += ". Lower the learning rate, or find the operation with torch.autograd.set_detect_anomaly(True)"
    raise UserCodeError(f"the trial of your own settings failed: {reason}", outcome.detail)


def compile_once(
    state: RunState, context: Context, spaces: Callable[[Context], Mapping[str, Space]], given: float | None
) -> Context:
    """Compile the model once beside the best settings found so far, if compile is tried.

    Args:
        state: what is known; the trial is added unless an earlier run has made it.
        context: of the run, without the first compile.
        spaces: of a context, by level.
        given: the budget that the user gave, in seconds.

    Returns:
        ``context`` with the time of the first compile, and with a longer budget if the user gave none.
    """
    known = spaces(replace(context, compile_seconds=0.0))
    space = known[AMP.name]
    plain = [trial for trial in state.history if trial.settings.compile == "off"]
    best = next(iter(rank(plain, space, 1, baseline=True)), state.baseline)
    modes = space.values["compile"] if best.compile == "off" else ()
    settings = next((each for mode in modes if (each := best.but(compile=mode)) != best and each in space), None)
    if settings is None:
        return replace(context, compile_seconds=0.0)
    limit = FIRST_COMPILE_SECONDS
    if given is not None:
        limit = min(FIRST_COMPILE_SHARE * given, state.schedule.left - proof_seconds(state, len(state.spaces)))
    trial = next((each for each in state.history if each.settings.compile != "off"), None)
    began = state.schedule.clock()
    if trial is None and limit < LEAST_COMPILE_SECONDS:
        return context
    if trial is None:
        follows = "" if given is not None else "; the length of the run follows what it takes"
        stage = f"compiling the model once ({settings.compile}), up to {limit:.0f} s{follows}"
        state.observe(stage=stage, trying=settings)
        level = LOWEST if settings in known[LOWEST] else AMP.name
        trial = state.measure(settings, level, deadline=state.schedule.clock() + limit)
    unknown = math.inf if isinstance(trial.outcome, TimedOut) else 0.0
    took = trial.measurement.first_step_seconds if trial.measurement is not None else unknown
    failed = isinstance(trial.outcome, NotApplied) and trial.outcome.knob == "compile"
    budget = context.budget_seconds
    if given is None:
        worth = trial.rate is not None and trial.rate >= NO_SLOWER * state.estimate(best)
        spent = min(took, limit) if took else state.schedule.clock() - began
        longer = budget + spent * (1 + COMPILES_IN_A_RUN if worth else 1)
        budget = max(budget, min(MAX_TRAINING_BUDGET, longer))
    reason = trial.outcome.reason.removeprefix("compile: ") if failed else None
    return replace(context, compile_seconds=took, budget_seconds=budget, compile_failure=reason)
