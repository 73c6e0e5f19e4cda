"""Where training is: written by the loader that is iterated and by optimizer steps, read by `Session.backward`."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

from autotune.runtime.dealing import Part

WHOLE = Part([])
"""A batch that is not dealt out."""


@dataclass
class Progress:
    """How far training is, and the current batch."""

    steps: int = 0
    """Steps taken of all prepared optimizers, and backward passes: the same number on every process."""
    measured_batch: bool = True
    """False once a training loader keeps another batch than the one that the profile was measured with."""
    mixed: bool = False
    """True once two loaders were read together whose current parts have other weights."""
    _part: Part = WHOLE
    _reader: weakref.ref[object] | None = field(default=None, repr=False)
    _steps: int = -1

    @property
    def part(self) -> Part:
        """This process's part of the current batch; a whole one once nobody reads the loader any more."""
        return self._part if self._reader is not None and self._reader() is not None else WHOLE

    def reads(self, reader: object, part: Part) -> None:
        """``reader``, a pass over a dealt loader, has come to ``part``."""
        if self._reader is None or self._reader() is not reader:
            self.mixed |= self._steps == self.steps and self.part.weight != part.weight
            self._reader = weakref.ref(reader)
        self._steps = self.steps
        self._part = part

    def ends(self, reader: object) -> None:
        """``reader`` has nothing more."""
        if self._reader is not None and self._reader() is reader:
            self._reader = None
