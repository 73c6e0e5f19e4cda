"""What a tuning run and every search method agree on. Importing this never imports Optuna."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from autotune.knobs.settings import Settings
from autotune.stats.measurement import HIGH_LATENCY, CoreLatencies
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

    @property
    def core_latency(self) -> float:
        """Core-to-core latency, see `autotune.stats.measurement.Block`; 0 where it was not measured."""
        outcome = self.outcome
        return outcome.measurement.core_latency if isinstance(outcome, Completed) and outcome.measurement else 0.0


def far_apart(history: Sequence[Observation]) -> tuple[bool, ...]:
    """Of each trial, whether the cores were further apart than in another of as many threads."""
    nearest = CoreLatencies(tuple((o.settings.threads, o.core_latency) for o in history if o.core_latency)).lowest
    return tuple(o.core_latency > HIGH_LATENCY * nearest.get(o.settings.threads, math.inf) for o in history)


def trial_noise(history: Sequence[Observation]) -> float:
    """Relative standard deviation from trial to trial of the same settings, by the repeats there are with the cores in
    the same places.

    Few repeats may agree by luck: `USUAL_NOISE` counts as `USUAL_REPEATS` more of them.
    """
    repeats: dict[tuple[Settings, bool], list[float]] = {}
    for observation, far in zip(history, far_apart(history), strict=True):
        if observation.rate:
            repeats.setdefault((observation.settings, far), []).append(math.log(observation.rate))
    squares = sum((log - sum(logs) / len(logs)) ** 2 for logs in repeats.values() for log in logs)
    spare = sum(len(logs) - 1 for logs in repeats.values())
    return math.sqrt((USUAL_REPEATS * USUAL_NOISE**2 + squares) / (USUAL_REPEATS + spare))


class Search(Protocol):
    """Who proposes next."""

    def ask(self) -> Proposal | None:
        """The next trial; None if no settings are expected to gain enough, or none are left."""

    def tell(self, proposal: Proposal, outcome: Outcome) -> None:
        """What became of ``proposal``. Must follow every `ask` before the next one."""
