"""Which samples of a global batch each process gets, and with what weight.

The user's batch is the global one. A full batch is cut into one part per process. A ragged last batch is cut into
fewer parts, and a part may be given to several processes: nobody is left without samples, and nobody gets a single one
where there are two (BatchNorm cannot normalise over one).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from dataclasses import dataclass
from itertools import islice
from typing import Any

from autotune.core.settings import Settings

LEAST = 2
"""Samples of a part, where there are as many."""


@dataclass(frozen=True)
class Part:
    """What one process gets of one global batch.

    Attributes:
        samples: what the dataset is asked for.
        weight: of the loss, which is a mean over ``samples``. Over all processes the weights average to 1.
        share: one over the number of processes that have the same samples.
    """

    samples: list[Any]
    weight: float = 1.0
    share: float = 1.0


def deal(batch: Sequence[Any], world: int, rank: int, full: int | None = None, *, equal: bool = False) -> Part:
    """Rank ``rank``'s part of ``batch``.

    Args:
        batch: the samples of one global batch.
        world: the number of processes.
        rank: the process.
        full: samples of a full batch; None where batches have no fixed size.
        equal: cut only into parts that weigh the same, so that a loss over batches of two loaders stays exact. Parts
            may then be larger.
    """
    samples = len(batch)
    parts = max(1, min(world, samples // LEAST))
    if full is not None:
        parts = min(parts, -(-samples // largest_part(full, world)))
    if equal:
        parts = max(count for count in range(1, parts + 1) if samples % count == world % count == 0)
    own = list(batch[rank % parts :: parts])
    sharing = len(range(rank % parts, world, parts))
    return Part(own, len(own) * world / (samples * sharing), 1 / sharing)


def largest_part(batch: int, world: int) -> int:
    """Samples of the largest part of a full batch."""
    return -(-batch // world)


def batch_to_train_with(
    own: int, settings: Settings | None, level: str | None, samples: int | None, *, drop_last: bool = False
) -> int:
    """The global batch: the user's ``own``; at level ``max`` the profile's, unless an epoch is smaller.

    Args:
        own: the user's.
        settings: the profile's.
        level: the profile's.
        samples: of an epoch; None where nobody knows.
        drop_last: whether an epoch that is smaller than a batch has none.
    """
    if settings is None or level != "max":
        return own
    too_large = drop_last if samples is None else settings.global_batch > samples
    return own if too_large else settings.global_batch


def said_of(batch: int, own: int, settings: Settings | None) -> str | None:
    """What to say where training does not use the batch that the profile was measured with."""
    if settings is None or batch == settings.global_batch:
        return None
    return f"your batch of {own} is kept; the profile was measured with {settings.global_batch}"


def length(value: object) -> int | None:
    """``len(value)``, or None where it has none."""
    try:
        return len(value) if isinstance(value, Sized) else None
    except (TypeError, NotImplementedError):
        return None


def cut(order: Iterator[Any], size: int, *, drop_last: bool) -> Iterator[list[Any]]:
    """Batches of ``size`` samples, as `torch.utils.data.BatchSampler` cuts them."""
    while batch := list(islice(order, size)):
        if drop_last and len(batch) < size:
            return
        yield batch
