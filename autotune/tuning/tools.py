"""What the phases of a run work with. Everything with an effect is passed in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from autotune.knobs.settings import Settings
from autotune.knobs.space import Space
from autotune.search.protocol import Observation, Search
from autotune.stats.outcome import Outcome
from autotune.tuning.events import Observer, ignore
from autotune.tuning.schedule import Schedule


class Contest(Protocol):
    """One generation of contenders, resident in memory.

    Attributes:
        neighbours: processors that other processes kept busy during the last round, on average.
        missed: largest share of its processors' time that a contender missed during the last round.
    """

    neighbours: float
    missed: float

    def round(self, seconds: float) -> dict[str, float]:
        """One block of each, in random order: items per second by name. A contender that ended is left out."""


class Bench(Protocol):
    """Where settings are measured."""

    def measure(self, settings: Settings, give_up_below: float, deadline: float) -> Outcome:
        """One trial, judged."""

    def contest(self, contenders: Mapping[str, Settings], deadline: float) -> AbstractContextManager[Contest]:
        """A context manager that gives a `Contest` of warm, paused contenders."""


@dataclass(frozen=True, kw_only=True)
class Tools:
    """What the phases of a run work with."""

    bench: Bench
    spaces: Mapping[str, Space]
    """Feasible settings by level, lowest first."""
    schedule: Schedule
    new_search: Callable[[Space, Settings, bool], Search]
    """``(space, start, thorough)``: the search of one level."""
    rank: Callable[[Sequence[Observation], Space, int], Sequence[Settings]]
    """``(history, space, count)``: the best settings measured so far, best first."""
    observe: Observer = ignore
