"""Knobs in force in one session: what was changed, how it is read back and put back, and what knobs share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Affinity:
    """The place of one training process.

    Attributes:
        cpus: CPUs of its compute threads, ascending.
        workers: CPUs of its loader workers.
    """

    cpus: tuple[int, ...]
    workers: tuple[int, ...]


class Change:
    """One knob's value in force in one session. The base changes nothing."""

    def why_not(self) -> str | None:
        """Read back: return why the value is not in force now, or None."""
        return None

    def undo(self) -> None:
        """Put back what was changed."""


@dataclass(frozen=True, eq=False)
class Changed(Change):
    """A change that two functions make up.

    Attributes:
        back: puts back what was changed.
        read: returns why the value is not in force now, or None.
    """

    back: Callable[[], object] = lambda: None
    read: Callable[[], str | None] = lambda: None

    def why_not(self) -> str | None:
        """Read back: return why the value is not in force now, or None."""
        return self.read()

    def undo(self) -> None:
        """Put back what was changed."""
        self.back()


class Refused(Changed):
    """A value that could not be put in force, for a reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(read=lambda: reason)


@dataclass
class Training:
    """What the knobs of one session share.

    Attributes:
        device: where models and batches are.
        affinity: the CPUs that this process was started on; None if it is not bound.
        started: changes of the process as a whole, by knob.
    """

    device: torch.device
    affinity: Affinity | None = None
    started: dict[str, Change] = field(default_factory=dict)
