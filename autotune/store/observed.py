"""Rates of real trainings beside the profile that they ran with: day, level, steps, and the share of the promised rate.

They hold nothing of the training itself. Only who sets ``AUTOTUNE_OBSERVE`` writes them.
"""

from __future__ import annotations

import contextlib
import json
import math
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

from autotune.store import atomic, plain_file

SUFFIX = ".observed"
MOST = 200
"""Trainings that are kept, the latest."""
MOST_BYTES = 64 * 1024


@dataclass(frozen=True)
class Observed:
    """One training.

    Attributes:
        date: day of its end, ``2026-11-22``.
        level: of the profile.
        steps: optimizer steps.
        share: its rate over the one that the profile promises.
    """

    date: str
    level: str
    steps: int
    share: float


def read(profile: Path) -> tuple[Observed, ...]:
    """What trainings with the file ``profile`` have left, oldest first. Lines that are none of ours are left out."""
    try:
        lines = plain_file.read(profile.with_suffix(SUFFIX), MOST_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return ()
    return tuple(found for line in lines if (found := _parsed(line)) is not None)[-MOST:]


def append(profile: Path, observed: Observed) -> None:
    """Add one training; several may do so at once.

    Raises:
        OSError: the folder cannot be written.
    """
    path = profile.with_suffix(SUFFIX)
    with atomic.locked(path.parent):
        kept = (*read(profile), observed)[-MOST:]
        atomic.replace(path, "".join(f"{json.dumps(asdict(each))}\n" for each in kept))


def summary(found: tuple[Observed, ...], level: str) -> str:
    """``3 trainings reached 0.97 of the promised rate``; empty without any at ``level``."""
    shares = [each.share for each in found if each.level == level]
    if not shares:
        return ""
    trainings = "1 training" if len(shares) == 1 else f"{len(shares)} trainings"
    return f"{trainings} reached {statistics.median(shares):.2f} of the promised rate"


def _parsed(line: str) -> Observed | None:
    with contextlib.suppress(ValueError, TypeError, RecursionError, OverflowError):
        found = Observed(**json.loads(line))
        numbers = type(found.steps) is int and type(found.share) in (int, float)
        words = isinstance(found.date, str) and isinstance(found.level, str)
        if numbers and words and 0 < float(found.share) < math.inf:
            return found
    return None
