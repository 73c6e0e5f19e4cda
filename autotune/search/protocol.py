"""What a tuning run and every search method agree on. Importing this never imports Optuna."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from autotune.knobs.settings import Settings
from autotune.stats.outcome import Completed, Outcome

USUAL_NOISE, USUAL_REPEATS = 0.03, 2


@dataclass(frozen=True)
class Proposal:
    """Settings worth a trial.

    Attributes:
        settings: what to run.
        stage: why: ``baseline``, ``design``, ``moves`` or ``model``; ``again`` repeats the baseline on purpose, which
            shows drift.
        number: of the trial within the whole tuning run, from 0.
        give_up_below: items/s below which the trial may end early, clearly lost; 0 means never.
    """

    settings: Settings
    stage: str
    number: int
    give_up_below: float = 0.0


@dataclass(frozen=True)
class Observation:
    """One finished trial, of whichever level."""

    settings: Settings
    outcome: Outcome
    level: str

    @property
    def rate(self) -> float | None:
        """Items per second; None where the trial gave none."""
        outcome = self.outcome
        if isinstance(outcome, Completed) and outcome.measurement is not None and outcome.measurement.rate > 0:
            return outcome.measurement.rate
        return None


def trial_noise(history: Sequence[Observation]) -> float:
    """Return the relative standard deviation from trial to trial of the same settings, by the repeats there are.

    Few repeats may agree by luck: `USUAL_NOISE` counts as `USUAL_REPEATS` more of them.
    """
    repeats: dict[Settings, list[float]] = {}
    for observation in history:
        if observation.rate:
            repeats.setdefault(observation.settings, []).append(math.log(observation.rate))
    squares = sum((log - sum(logs) / len(logs)) ** 2 for logs in repeats.values() for log in logs)
    spare = sum(len(logs) - 1 for logs in repeats.values())
    return math.sqrt((USUAL_REPEATS * USUAL_NOISE**2 + squares) / (USUAL_REPEATS + spare))


class Search(Protocol):
    """Who proposes next."""

    def ask(self) -> Proposal | None:
        """The next trial; None if no settings are expected to gain enough, or none are left."""

    def tell(self, proposal: Proposal, outcome: Outcome) -> None:
        """What became of ``proposal``. Must follow every `ask` before the next one."""
