"""What a way is told, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Sandbox:
    """Where a script runs in trials.

    Attributes:
        scratch: the study's folder, which stays the real one; an absolute path without links.
        origin: the user's working folder.
        network: whether other machines may be reached.
        room: bytes that a trial may write.
    """

    scratch: Path
    origin: Path
    network: bool
    room: int


@dataclass(frozen=True)
class Entered:
    """A way that this process has taken.

    Attributes:
        nest: called in a forked trial with the trial's folder inside scratch: the trial's writes are its own.
        limits: what this way does not keep inside, or does not allow, in words.
    """

    nest: Callable[[Path], None]
    limits: tuple[str, ...] = ()
