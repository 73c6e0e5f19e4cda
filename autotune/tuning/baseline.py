"""The first phase: measure the user's settings, or the gentlest change of them that fits the machine's memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autotune.errors import NothingUsable, UserCodeError
from autotune.knobs.baseline import smaller_baselines
from autotune.knobs.settings import Settings
from autotune.search.protocol import Observation
from autotune.stats.outcome import BUDGET_OVER, Completed, Outcome, OutOfMemory, TimedOut


@dataclass(frozen=True)
class Baseline:
    """What every gain is measured against.

    Attributes:
        settings: the user's own, or a change of them.
        outcome: of their trial.
        trials: all trials that were run to find them, oldest first; none if an earlier run had measured them.
        notes: what was given up, for people.
    """

    settings: Settings
    outcome: Completed
    trials: tuple[Observation, ...] = ()
    notes: tuple[str, ...] = ()


def settle_baseline(wanted: Settings, known: Sequence[Observation], measure: Callable[[Settings], Outcome]) -> Baseline:
    """The first of the user's settings and their smaller changes that runs.

    Args:
        wanted: the user's settings.
        known: trials of an earlier run that is resumed.
        measure: runs one trial.

    Raises:
        UserCodeError: the user's code failed; carries its own traceback.
        NothingUsable: nothing fits, or the budget is over.
    """
    outcomes = {observation.settings: observation.outcome for observation in known}
    trials: list[Observation] = []
    notes: list[str] = []
    for settings, change in ((wanted, ""), *smaller_baselines(wanted)):
        if settings not in outcomes:
            outcomes[settings] = measure(settings)
            trials.append(Observation(settings, outcomes[settings], "safe"))
        outcome = outcomes[settings]
        if isinstance(outcome, Completed):
            notes += [f"the baseline is your settings {change}"] if change else []
            return Baseline(settings, outcome, tuple(trials), tuple(notes))
        memory = _out_of_memory(outcome)
        if settings == wanted:
            notes.append(f"your own settings do not fit this machine: {memory.reason}")
    raise NothingUsable(f"nothing fits this machine's memory: {memory.reason}\n{memory.detail}")


def _out_of_memory(outcome: Outcome) -> OutOfMemory:
    """``outcome``, after which smaller settings are worth a try; anything else is an error."""
    if isinstance(outcome, OutOfMemory):
        return outcome
    if isinstance(outcome, TimedOut) and outcome.phase == BUDGET_OVER:
        raise NothingUsable("the budget ended before your own settings were measured: give a longer --budget")
    raise UserCodeError(f"the task failed under your own settings: {outcome.reason}", outcome.detail)
