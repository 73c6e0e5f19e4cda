"""What a method would recommend at any time, and what that turned out to be worth. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.knobs.settings import Settings
from autotune.stats.student import student_quantile

CONFIDENCE = 0.95
SAME_QUALITY = 0.98


@dataclass(frozen=True)
class Choice:
    """Settings and how their processes are started (see `benchmarks.rivals.measuring.rate`)."""

    settings: Settings
    launcher: str = "plain"

    def as_dict(self, today: Settings) -> dict[str, Any]:
        """Plain data for JSON: what differs from ``today``."""
        changes = {name: mine for name, (mine, _) in self.settings.difference(today).items()}
        return {"changes": changes, "launcher": self.launcher}


@dataclass(frozen=True)
class Trial:
    """One finished trial of a method: ``rate`` in items per second as the method saw it; None where it failed."""

    seconds: float
    choice: Choice
    rate: float | None
    note: str = ""

    def as_dict(self, today: Settings) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"seconds": round(self.seconds, 2), **self.choice.as_dict(today), "rate": self.rate, "note": self.note}


@dataclass(frozen=True)
class Point:
    """From ``seconds`` after its start on, a method recommends ``choice``."""

    seconds: float
    choice: Choice


@dataclass(frozen=True)
class Method:
    """One contender: a name, what it may change, and what it recommends from when on, today's settings first."""

    name: str
    level: str
    timeline: tuple[Point, ...]
    """Starts at 0 s."""
    trials: tuple[Trial, ...] = ()
    note: str = ""
    budget: float = 0.0
    """Seconds that the method was given."""

    def at(self, seconds: float) -> Point:
        """What the method recommends ``seconds`` after its start."""
        return [point for point in self.timeline if point.seconds <= seconds][-1]

    def as_dict(self, today: Settings) -> dict[str, Any]:
        """Plain data for JSON."""
        history = [{"seconds": round(point.seconds, 2), **point.choice.as_dict(today)} for point in self.timeline]
        trials = [trial.as_dict(today) for trial in self.trials]
        return {**vars(self), "timeline": history, "trials": trials}


def best_so_far(current: Choice, trials: Iterable[Trial]) -> tuple[Point, ...]:
    """The timeline of a method that recommends the fastest trial that it has seen, and ``current`` until then."""
    points, best = [Point(0.0, current)], 0.0
    for trial in trials:
        if trial.rate is not None and trial.rate > best:
            best = trial.rate
            if trial.choice != points[-1].choice:
                points.append(Point(trial.seconds, trial.choice))
    return tuple(points)


def thinned(timeline: Sequence[Point], count: int) -> tuple[Point, ...]:
    """At most ``count`` points spread over ``timeline``, the last among them."""
    if len(timeline) <= count:
        return tuple(timeline)
    last = len(timeline) - 1
    return tuple(timeline[k] for k in sorted({last - last * k // max(1, count - 1) for k in range(count)}))


@dataclass(frozen=True)
class Ratio:
    """How many times as fast: geometric mean over rounds and Student's interval of it."""

    value: float
    low: float
    high: float
    rounds: int

    def __str__(self) -> str:
        return f"{self.value:.2f}x ({self.low:.2f} to {self.high:.2f})"

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; an interval without an end holds None."""
        return {name: value if math.isfinite(value) else None for name, value in vars(self).items()}


Rounds = Sequence[Mapping[Choice, float]]
"""Rates of every choice, one mapping per round; a choice that failed is missing from its round."""


def ratio(rounds: Rounds, choice: Choice, reference: Choice) -> Ratio | None:
    """``choice`` against ``reference`` over the rounds in which both ran; None where there is none."""
    if choice == reference:
        return Ratio(1.0, 1.0, 1.0, len(rounds))
    logs = [math.log(turn[choice] / turn[reference]) for turn in rounds if choice in turn and reference in turn]
    if not logs:
        return None
    count, mean = len(logs), sum(logs) / len(logs)
    if count == 1:
        return Ratio(math.exp(mean), 0.0, math.inf, 1)
    spread = math.sqrt(sum((value - mean) ** 2 for value in logs) / (count - 1))
    half = student_quantile((1 + CONFIDENCE) / 2, count - 1) * spread / math.sqrt(count)
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), count)


def time_to_quality(
    timeline: Iterable[Point], goal: Choice, rounds: Rounds, share: float = SAME_QUALITY
) -> float | None:
    """Seconds until a method first recommends what re-measures at ``share`` of ``goal``'s rate; None where never."""
    for point in timeline:
        found = ratio(rounds, point.choice, goal)
        if found is not None and found.value >= share:
            return point.seconds
    return None
