"""What the callbacks share: the profile's rate, and one warning where training stays well below it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from autotune.runtime.choice import Claim, claim
from autotune.runtime.notes import Notes
from autotune.runtime.pace import Pace
from autotune.runtime.slowness import Slowness


class RateWatch:
    """Compares a trainer's samples per second with a profile's. It warns once, and never stops training.

    Args:
        profile: the profile; else ``AUTOTUNE_PROFILE``, else the best match for this machine and ``target``.
        target: what was tuned; the running script's name if None.
        level: the profile's level; else ``AUTOTUNE_LEVEL``, else what the profile recommends.
        trainer: the name of the trainer for `autotune export`.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        profile: str | Path | None,
        target: str | None,
        level: str | None,
        trainer: str,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.notes = Notes(announce=True)
        self._pace: Pace | None = None
        try:
            found = claim(profile, target, level, os.environ)
        except Exception as error:  # whatever is wrong with a profile, training goes on
            self.notes.say(f"the rate is not compared: {str(error) or type(error).__name__}")
            return
        if found.unit != "samples":
            self.notes.say(f"the rate is not compared: {found.origin} counts {found.unit}, the trainer samples")
            return
        self._pace = Pace(found.rate, self.notes.say, _Words(found, trainer), clock, windows=None)

    def step(self, samples: float | None) -> None:
        """An optimizer step is done that trained on ``samples`` of all processes; None where nobody knows."""
        if self._pace is None:
            return
        if samples is None:
            self.notes.say("the rate is not compared: the loader does not say how large its batches are")
            self._pace = None
        elif not self._pace.tick(samples):
            self._pace = None

    def pause(self) -> None:
        """What ran since the last step was no training."""
        if self._pace is not None:
            self._pace.pause()


class _Words(Slowness):
    """The warning, in samples a second."""

    def __init__(self, found: Claim, trainer: str) -> None:
        super().__init__()
        self.found, self.trainer = found, trainer

    def words(self, rate: float, expected: float) -> str:
        return (
            f"training does {rate:.4g} samples/s, level {self.found.level} of the profile measured {expected:.4g}"
            f" ({self.found.origin}): {self.causes()}; autotune export PROFILE --to {self.trainer} prints the settings"
            " to compare"
        )
