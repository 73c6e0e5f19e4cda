"""The first phase: measure the user's settings, or the gentlest change of them that fits the memory; compile once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from autotune.errors import NothingUsable, UserCodeError
from autotune.knobs.baseline import smaller_baselines
from autotune.knobs.compile import FIRST_MODES
from autotune.knobs.knob import LEVELS, Context
from autotune.knobs.settings import Settings
from autotune.knobs.space import Space
from autotune.search.history import Trial
from autotune.stats.outcome import BUDGET_OVER, Completed, Outcome, OutOfMemory, TimedOut
from autotune.tuning.events import Observer, StageStarted
from autotune.tuning.options import compiled_budget, first_compile_seconds

NO_SLOWER = 0.95
"""A compiled model below this share of the baseline's rate is not worth more time."""


@dataclass(frozen=True)
class Baseline:
    """The baseline, which every gain is measured against.

    Attributes:
        settings: the user's own, or a change of them.
        outcome: of their trial.
        trials: all trials that were run to find them, oldest first; none if an earlier run had measured them.
        notes: what was given up, for people.
    """

    settings: Settings
    outcome: Completed
    trials: tuple[Trial, ...] = ()
    notes: tuple[str, ...] = ()


def settle_baseline(wanted: Settings, known: Sequence[Trial], measure: Callable[[Settings], Outcome]) -> Baseline:
    """Return the first of the user's settings and their smaller changes that runs.

    Args:
        wanted: the user's settings.
        known: trials of an earlier run that is resumed.
        measure: runs one trial.

    Raises:
        UserCodeError: the user's code failed; carries its own traceback.
        NothingUsable: nothing fits, or the budget is over.
    """
    outcomes = {trial.settings: trial.outcome for trial in known}
    trials: list[Trial] = []
    notes: list[str] = []
    for settings, change in ((wanted, ""), *smaller_baselines(wanted)):
        if settings not in outcomes:
            outcomes[settings] = measure(settings)
            trials.append(Trial(settings, outcomes[settings], LEVELS[0], "baseline"))
        outcome = outcomes[settings]
        if isinstance(outcome, Completed):
            notes += [f"the baseline is your settings {change}"] if change else []
            return Baseline(settings, outcome, tuple(trials), tuple(notes))
        memory = _out_of_memory(outcome)
        if settings == wanted:
            notes.append(f"your own settings do not fit this machine: {memory.reason}")
    raise NothingUsable(f"nothing fits this machine's memory: {memory.reason}\n{memory.detail}")


def _out_of_memory(outcome: Outcome) -> OutOfMemory:
    """Return ``outcome``, after which smaller settings are worth a try; anything else is an error."""
    if isinstance(outcome, OutOfMemory):
        return outcome
    if isinstance(outcome, TimedOut) and outcome.phase == BUDGET_OVER:
        raise NothingUsable("the budget ended before your own settings were measured: give a longer --budget")
    raise UserCodeError(f"the task failed under your own settings: {outcome.reason}", outcome.detail)


def first_compiled(context: Context, space: Space) -> Settings | None:
    """Return the baseline with the compile mode that usually brings most; None if compile does not compete."""
    own = context.baseline
    modes = FIRST_MODES[context.task.device] if own.compile == "off" else ()
    return next((settings for settings in (own.but(compile=mode) for mode in modes) if settings in space), None)


def compile_once(
    history: Sequence[Trial],
    context: Context,
    space: Space,
    given: float | None,
    measure: Callable[[Settings, float], Outcome],
    observe: Observer,
) -> tuple[Context, Trial | None]:
    """Compile the model once, if compile competes.

    Args:
        history: the trials so far: the baseline's, and those of an earlier run that is resumed.
        context: of the run, without the first compile.
        space: of the lowest level.
        given: the budget that the user gave, in seconds.
        measure: runs one trial in at most so many seconds.
        observe: is called with what is about to be spent.

    Returns:
        ``context`` with the time of the first compile, and with a longer budget if the user gave none; the new trial.
    """
    settings = first_compiled(context, space)
    if settings is None:
        return context, None
    limit = first_compile_seconds(given)
    trial, new = next((each for each in history if each.settings == settings), None), None
    if trial is None:
        follows = "" if given is not None else "; the length of the run follows what it takes"
        stage = f"compiling the model once ({settings.compile}), up to {limit:.0f} s{follows}"
        observe(StageStarted(stage, settings))
        trial = new = Trial(settings, measure(settings, limit), space.level, "compile")
    took = compile_seconds(trial.outcome)
    budget = context.budget_seconds
    if given is None:
        own = [each.rate for each in history if each.settings == context.baseline and each.rate]
        worth = bool(trial.rate and trial.rate >= NO_SLOWER * sum(own) / max(1, len(own)))
        budget = compiled_budget(budget, limit if took in (None, math.inf) else took, worth=worth)
    return replace(context, compile_seconds=took, budget_seconds=budget), new


def compile_seconds(outcome: Outcome) -> float | None:
    """Return the seconds of the first compiled step; infinite if it did not end in time, None if it failed."""
    if isinstance(outcome, Completed) and outcome.measurement is not None:
        return outcome.measurement.first_step_seconds
    return math.inf if isinstance(outcome, TimedOut) else None
