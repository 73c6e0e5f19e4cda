"""Events that a tuning run reports to whoever watches it.

An event's fields are what it changes in the view of the run, `autotune.report.live.RunProgress`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autotune.knobs.settings import Settings


class Event:
    """Something that happened in a run."""


@dataclass(frozen=True)
class StageStarted(Event):
    """A part of the run has begun, or its next trial; ``stage`` names the part, in plain words."""

    stage: str
    trying: Settings | None = None


@dataclass(frozen=True)
class BaselineKnown(Event):
    """The settings that all others are compared with, and the unit of rates."""

    baseline: Settings
    unit: str


@dataclass(frozen=True)
class BudgetSet(Event):
    """The whole run will take ``budget`` seconds."""

    budget: float


@dataclass(frozen=True)
class TrialFinished(Event):
    """A trial has ended. Counts are those of the whole run; rates are None until measured."""

    trials: int
    baseline_rate: float | None
    best: Settings | None
    best_rate: float | None
    failures: int
    last_failure: str


@dataclass(frozen=True)
class RoundFinished(Event):
    """Each candidate has run one more block: its ``rounds`` so far, by name."""

    rounds: Mapping[str, int]


@dataclass(frozen=True)
class ReplicateFinished(Event):
    """A replicate of the proof has ended: rates by all its rounds so far."""

    baseline_rate: float | None
    best: Settings
    best_rate: float | None


Observer = Callable[[Event], None]


def ignore(event: Event) -> None:
    """Do nothing: nobody watches the run."""
