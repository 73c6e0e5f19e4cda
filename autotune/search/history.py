"""The history of a run: one record of each trial. Importing this never imports Optuna."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.knobs.settings import Settings
from autotune.stats.measurement import Measurement
from autotune.stats.outcome import BUDGET_OVER, Outcome, TimedOut

INFEASIBLE = 0.0
"""An Optuna study's value of a trial without a rate. Never FAIL: samplers ignore failed trials and repeat them."""
USUAL_NOISE, USUAL_REPEATS = 0.03, 2


@dataclass(frozen=True)
class Trial:
    """One finished trial: the record that search, race, proof, result, journal and report share.

    Attributes:
        settings: what ran.
        outcome: how it ended.
        level: the level that was searched then.
        seconds: when it ended, since the end of the first trial; known of trials read from a journal.
        worth: of an item, see `autotune.knobs.knob.progress`.
    """

    settings: Settings
    outcome: Outcome
    level: str
    seconds: float = 0.0
    worth: float = 1.0

    @property
    def measurement(self) -> Measurement | None:
        """Return the blocks that were measured; None if the trial failed."""
        return self.outcome.measurement

    @property
    def cut_short(self) -> bool:
        """Return True if only the end of the budget kept it from being measured: that is no failure."""
        return isinstance(self.outcome, TimedOut) and self.outcome.phase == BUDGET_OVER

    @property
    def rate(self) -> float | None:
        """Return items per second, each by its worth; None if the trial gave none."""
        measured = self.measurement
        return measured.rate * self.worth if measured is not None and measured.rate > 0 else None

    @property
    def value(self) -> float | None:
        """Return what the search maximises, the log of the rate; None if the trial gave none."""
        return math.log(self.rate) if self.rate else None

    @property
    def error(self) -> float:
        """Return the standard error of `value` by the trial's own blocks."""
        return self.measurement.relative_error if self.measurement is not None else math.inf


def first_measured(trials: Sequence[Trial]) -> tuple[Settings, Measurement]:
    """Return the first trial that was measured: at least the baseline was."""
    return next((trial.settings, trial.measurement) for trial in trials if trial.measurement is not None)


def trial_noise(trials: Sequence[Trial]) -> float:
    """Return the relative standard deviation from trial to trial of the same settings, by the repeats there are.

    Few repeats may agree by chance: `USUAL_NOISE` counts as `USUAL_REPEATS` more of them.
    """
    repeats: dict[Settings, list[float]] = {}
    for trial in trials:
        if trial.value is not None:
            repeats.setdefault(trial.settings, []).append(trial.value)
    squares = sum((log - sum(logs) / len(logs)) ** 2 for logs in repeats.values() for log in logs)
    spare = sum(len(logs) - 1 for logs in repeats.values())
    return math.sqrt((USUAL_REPEATS * USUAL_NOISE**2 + squares) / (USUAL_REPEATS + spare))
