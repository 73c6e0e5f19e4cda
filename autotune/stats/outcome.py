"""The end of a trial: measured, or infeasible with a reason. Never an exception, never NaN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.stats.measurement import Measurement


@dataclass(frozen=True)
class Outcome:
    """The parent's verdict on one trial. ``reason`` is one short sentence in plain words."""

    reason: str = ""
    detail: str = ""
    """The child's own traceback or the tail of its log, if there is one."""
    kind: ClassVar[str] = "outcome"

    @property
    def measurement(self) -> Measurement | None:
        """Return the blocks that were measured; None if the trial failed."""
        return None

    @property
    def measured(self) -> bool:
        """Return True if the trial gave a rate."""
        return isinstance(self, Completed)


@dataclass(frozen=True)
class Completed(Outcome):
    """The trial ran and was measured."""

    measurement: Measurement | None = None
    losses: tuple[float, ...] = ()
    """Loss of the first optimizer steps, mean over all processes: the numbers check."""
    seconds: float = 0.0
    """What the trial cost, from request to the end of its last process."""
    start_seconds: float = 0.0
    """From request to the first training step."""
    kind: ClassVar[str] = "completed"


@dataclass(frozen=True)
class Compared(Outcome):
    """The first steps were recorded, or compared with the baseline's.

    Attributes:
        differences: ``(what, how)`` of all that differs; empty if nothing does.
        draws: reading samples draws random numbers.
    """

    differences: tuple[tuple[str, str], ...] = ()
    draws: bool = False
    kind: ClassVar[str] = "compared"


@dataclass(frozen=True)
class OutOfMemory(Outcome):
    """Memory ran out; ``where`` is ``host``, ``device`` or ``shm``."""

    where: str = "host"
    kind: ClassVar[str] = "out-of-memory"


BUDGET_OVER = "the budget lasted"
"""The phase of a trial that the end of the whole budget cut short: no fault of its own."""


@dataclass(frozen=True)
class TimedOut(Outcome):
    """No progress within the watchdog's limit for the ``phase`` it was in."""

    phase: str = "stepping"
    kind: ClassVar[str] = "timed-out"


@dataclass(frozen=True)
class Crashed(Outcome):
    """The user's code raised, exited early, or a signal ended it."""

    kind: ClassVar[str] = "crashed"


@dataclass(frozen=True)
class WrongNumbers(Outcome):
    """Losses were not finite or did not track the fp32 baseline."""

    kind: ClassVar[str] = "wrong-numbers"


@dataclass(frozen=True)
class NotApplied(Outcome):
    """Something asked for did not take effect; ``knob`` names it."""

    knob: str = ""
    kind: ClassVar[str] = "not-applied"


KINDS: dict[str, type[Outcome]] = {
    kind.kind: kind for kind in (Completed, OutOfMemory, TimedOut, Crashed, WrongNumbers, NotApplied)
}
"""Ends of trials that journals and grids hold, by name."""
