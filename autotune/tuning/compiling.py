"""The first compile: one trial before the search, which tells whether compile has time to compete."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from autotune.knobs.compile import FIRST_MODES
from autotune.knobs.knob import Context
from autotune.knobs.settings import Settings
from autotune.knobs.space import Space
from autotune.search.protocol import Observation
from autotune.stats.outcome import Completed, Outcome, TimedOut
from autotune.tuning.budget import compiled_budget, first_compile_seconds
from autotune.tuning.events import Observer, StageStarted, TrialStarted
from autotune.tuning.state import RunState

NO_SLOWER = 0.95
"""A compiled model below this share of the baseline's rate is not worth more time."""


def first_compiled(context: Context, space: Space) -> Settings | None:
    """The baseline with the compile mode that usually brings most; None where compile does not compete."""
    own = context.baseline
    modes = FIRST_MODES[context.task.device] if own.compile == "off" else ()
    return next((settings for settings in (own.but(compile=mode) for mode in modes) if settings in space), None)


def compile_once(
    state: RunState,
    context: Context,
    space: Space,
    given: float | None,
    measure: Callable[[Settings, float], Outcome],
    observe: Observer,
) -> Context:
    """Compile the model once, where compile competes; the trial is added to ``state``.

    Args:
        state: what is known after the baseline.
        context: of the run, without the first compile.
        space: of the lowest level.
        given: the budget that the user gave, in seconds.
        measure: runs one trial in at most so many seconds.
        observe: is told what is about to be spent.

    Returns:
        ``context`` with what the first compile took, and with a longer budget where the user gave none.
    """
    settings = first_compiled(context, space)
    if settings is None:
        return context
    known = next((each.outcome for each in state.history if each.settings == settings), None)
    outcome = known or _measured(settings, given, measure, observe)
    if known is None:
        state.add(Observation(settings, outcome, space.level))
    took = compile_seconds(outcome)
    budget = context.budget_seconds
    if given is None:
        spent = first_compile_seconds(given) if took is None or took == math.inf else took
        budget = compiled_budget(budget, spent, worth=_is_worth(state, outcome))
    return replace(context, compile_seconds=took, budget_seconds=budget)


def _measured(
    settings: Settings, given: float | None, measure: Callable[[Settings, float], Outcome], observe: Observer
) -> Outcome:
    seconds = first_compile_seconds(given)
    follows = "" if given is not None else "; the length of the run follows what it takes"
    observe(TrialStarted(settings))
    observe(StageStarted(f"compiling the model once ({settings.compile}), up to {seconds:.0f} s{follows}"))
    return measure(settings, seconds)


def compile_seconds(outcome: Outcome) -> float | None:
    """What the first compiled step took; infinite where it did not come to its end, None where it failed."""
    if isinstance(outcome, Completed) and outcome.measurement is not None:
        return outcome.measurement.first_step_seconds
    return math.inf if isinstance(outcome, TimedOut) else None


def _is_worth(state: RunState, outcome: Outcome) -> bool:
    measured = outcome.measurement if isinstance(outcome, Completed) else None
    return measured is not None and measured.rate >= NO_SLOWER * state.baseline_rate
