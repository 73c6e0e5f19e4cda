"""What a tuning run tells whoever watches it: one event for each thing that happens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autotune.core.settings import Settings


@dataclass(frozen=True)
class StageStarted:
    """Something without results of its own has begun; ``stage`` says what, in plain words."""

    stage: str


@dataclass(frozen=True)
class BaselineKnown:
    """The baseline's settings are known, and the unit that rates are counted in."""

    settings: Settings
    unit: str


@dataclass(frozen=True)
class BudgetSet:
    """The whole run will take this many seconds."""

    seconds: float


@dataclass(frozen=True)
class SearchStarted:
    """The search of one level has begun."""

    level: str


@dataclass(frozen=True)
class TrialStarted:
    """A trial of ``settings`` has begun."""

    settings: Settings


@dataclass(frozen=True)
class TrialFinished:
    """A trial has ended. Everything counts from the start of the run; rates are None until measured."""

    trials: int
    baseline_rate: float | None
    best: Settings | None
    best_rate: float | None
    failures: int
    last_failure: str


@dataclass(frozen=True)
class RaceStarted:
    """Finalists are about to run side by side."""


@dataclass(frozen=True)
class ProofStarted:
    """The proof has begun."""


@dataclass(frozen=True)
class RoundFinished:
    """Each of ``contenders`` has run one more block; ``rounds`` so far."""

    contenders: tuple[str, ...]
    rounds: int


@dataclass(frozen=True)
class GenerationFinished:
    """A generation of the proof has ended: the rates by all rounds of the proof so far."""

    baseline_rate: float | None
    best: Settings
    best_rate: float | None


Event = (
    StageStarted
    | BaselineKnown
    | BudgetSet
    | SearchStarted
    | TrialStarted
    | TrialFinished
    | RaceStarted
    | ProofStarted
    | RoundFinished
    | GenerationFinished
)
Observer = Callable[[Event], None]


def ignore(event: Event) -> None:
    """The observer of a run that nobody watches."""
