"""Knobs in force in one session: what was changed, how it is read back and put back, and what knobs share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Method = Callable[..., Any]


def replace(owner: Any, name: str, make: Callable[[Method], Method]) -> Callable[[], None]:
    """Replace ``owner.name`` by what ``make`` returns for it. Returns a function that undoes it."""
    original = getattr(owner, name)
    replaced = functools.wraps(original)(make(original))
    setattr(owner, name, replaced)

    def undo() -> None:
        if getattr(owner, name) is replaced:
            setattr(owner, name, original)

    return undo


@dataclass(frozen=True)
class Affinity:
    """The CPUs of one training process.

    Attributes:
        cpus: CPUs of its compute threads, ascending.
        workers: CPUs of its loader workers.
    """

    cpus: tuple[int, ...]
    workers: tuple[int, ...]


@dataclass(eq=False)
class Change:
    """One knob's value in force in one session. A value that needs more than two functions is a class of its own.

    Attributes:
        back: puts back what was changed; None if there is nothing to put back.
        read: returns why the value is not in force now, or None.
    """

    back: Callable[[], object] | None = None
    read: Callable[[], str | None] | None = None

    def why_not(self) -> str | None:
        """Read back: return why the value is not in force now, or None."""
        return None if self.read is None else self.read()

    def undo(self) -> None:
        """Put back what was changed."""
        if self.back is not None:
            self.back()


class Refused(Change):
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
