"""Share the samples of a global batch out among processes.

The user's batch is the global one. A full batch is cut into one part per process. A ragged last batch is cut into
fewer parts, and a part may be given to several processes: each process gets samples, and at least two of them
if there are two (BatchNorm cannot normalise over one).
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

LEAST = 2
"""Samples of a part, if there are as many."""


@dataclass(frozen=True)
class Shard:
    """The share of one process of one global batch.

    Attributes:
        samples: indices to read from the dataset.
        weight: of the loss, which is a mean over ``samples``. Over all processes the weights average to 1.
        share: one over the number of processes that have the same samples.
    """

    samples: list[Any]
    weight: float = 1.0
    share: float = 1.0


WHOLE = Shard([])
"""A batch that is not shared out."""


def shard(batch: Sequence[Any], world: int, rank: int, full: int | None = None, *, equal: bool = False) -> Shard:
    """Return rank ``rank``'s part of ``batch``.

    Args:
        batch: the samples of one global batch.
        world: the number of processes.
        rank: the process.
        full: samples of a full batch; None if batches have no fixed size.
        equal: cut only into parts that weigh the same, so that a loss over batches of two loaders stays exact. Parts
            may then be larger.
    """
    samples = len(batch)
    parts = max(1, min(world, samples // LEAST))
    if full is not None:
        parts = min(parts, -(-samples // -(-full // world)))
    if equal:
        parts = max(count for count in range(1, parts + 1) if samples % count == world % count == 0)
    own = list(batch[rank % parts :: parts])
    sharing = len(range(rank % parts, world, parts))
    return Shard(own, len(own) * world / (samples * sharing), 1 / sharing)


@dataclass
class Progress:
    """The progress of training, and the current batch."""

    steps: int = 0
    """Steps taken of all prepared optimizers, and backward passes: the same number on every process."""
    batch: int = 0
    """Number of the current global batch, the same on every process. Later batches have larger ones."""
    mixed: bool = False
    """True once two loaders were read together whose current parts have other weights."""
    _part: Shard = WHOLE
    _reader: weakref.ref[object] | None = field(default=None, repr=False)
    _steps: int = -1

    @property
    def part(self) -> Shard:
        """Return this process's part of the current batch; a whole one once nobody reads the loader any more."""
        return self._part if self._reader is not None and self._reader() is not None else WHOLE

    def reads(self, reader: object, part: Shard) -> None:
        """Note that ``reader``, a pass over a shared loader, has come to ``part``."""
        if self._reader is None or self._reader() is not reader:
            self.mixed |= self._steps == self.steps and self.part.weight != part.weight
            self._reader = weakref.ref(reader)
        self._steps = self.steps
        self._part = part

    def ends(self, reader: object) -> None:
        """Note that ``reader`` has nothing more."""
        if self._reader is not None and self._reader() is reader:
            self._reader = None
