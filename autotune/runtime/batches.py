"""Which samples each process and micro-step gets: the user's global batches, dealt out exactly.

The order of samples is that of the user's own sampler. It is cut into global batches as one process would cut it; each
is dealt to the ranks in turn, and each rank's share is split into micro-batches of nearly equal size. Losses are means,
so every micro-batch carries the weight that makes the sum of gradients that of the whole global batch, also for a
ragged last one. All ranks take equally many micro-steps, so no collective waits for a rank that has finished.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import cast

import torch
from torch.utils.data import RandomSampler, Sampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler

from autotune.core.settings import Settings

SHARED_BY_SEED = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
"""Samplers whose whole order comes from one generator, so that all ranks can agree on it."""


@dataclass(frozen=True)
class Plan:
    """How one global batch is dealt out."""

    batch: int
    """Samples per optimizer step, over all processes."""
    accumulation: int
    """Micro-steps of a full batch."""
    world: int = 1
    rank: int = 0

    @property
    def micro(self) -> int:
        """Most samples of one process's micro-step."""
        return -(-self.batch // (self.world * self.accumulation))

    def parts(self, samples: int) -> int:
        """Micro-steps for a global batch of ``samples``, the same on every rank."""
        if samples == self.batch:
            return self.accumulation
        return -(-samples // (self.world * self.micro))

    def sizes(self, samples: int) -> list[int]:
        """This rank's micro-batches of a global batch of ``samples``; 0 where there are too few for all."""
        own = max(0, -(-(samples - self.rank) // self.world))
        parts = self.parts(samples)
        return [own // parts + (k < own % parts) for k in range(parts)]


def plan(
    batch: int, settings: Settings | None, *, level: str | None, world: int = 1, rank: int = 0
) -> tuple[Plan, str | None]:
    """Deal ``batch``, the user's global batch, to ``world`` processes, and what is worth saying about it.

    Only level ``max`` replaces the user's batch by the profile's. Where batch or world differ from the profile's, the
    accumulation is chosen so that no micro-batch is larger than the one that was measured.
    """
    if settings is None:
        return Plan(batch, 1, world, rank), None
    if level == "max":
        batch = settings.global_batch
    share = max(1, batch // world)
    if (batch, world) == (settings.global_batch, settings.processes):
        return Plan(batch, min(settings.accumulation, share), world, rank), None
    accumulation = min(share, -(-batch // (world * settings.batch_size)))
    said = None
    if batch != settings.global_batch:
        said = (
            f"your batch of {batch} is kept (the profile was measured with {settings.global_batch}): "
            f"{world} x {accumulation} micro-batches"
        )
    return Plan(batch, accumulation, world, rank), said


def unshareable(sampler: object) -> str | None:
    """Why several processes cannot agree on ``sampler``'s order, or None."""
    if type(sampler) in (*SHARED_BY_SEED, SequentialSampler):
        return None
    return f"cannot share out a custom sampler ({type(sampler).__name__}): every process sees all the data"


class GlobalBatches(Sampler[list[int]]):
    """A batch sampler over the user's ``source`` sampler that yields this rank's micro-batches.

    ``seed`` replaces the generator of a random source that has none of its own, so that all ranks draw the same order;
    the epoch is added to it.
    """

    def __init__(self, source: Iterable[int], plan: Plan, *, drop_last: bool = False, seed: int | None = None) -> None:
        self.source, self.plan, self.drop_last, self.seed = source, plan, drop_last, seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next pass, as on a `DistributedSampler`."""
        self.epoch = epoch
        if hasattr(self.source, "set_epoch"):
            self.source.set_epoch(epoch)

    def __len__(self) -> int:
        full, tail = divmod(len(cast(Sized, self.source)), self.plan.batch)
        return full * self.plan.accumulation + (self.plan.parts(tail) if tail and not self.drop_last else 0)

    def __iter__(self) -> Iterator[list[int]]:
        order = iter(self._order())
        rank, world = self.plan.rank, self.plan.world
        while chunk := list(itertools.islice(order, self.plan.batch)):
            if self.drop_last and len(chunk) < self.plan.batch:
                return
            own = chunk[rank::world]
            start = 0
            for size in self.plan.sizes(len(chunk)):
                # A rank without a sample repeats one at weight 0: it must still take part in the collective.
                yield own[start : start + size] or chunk[:1]
                start += size

    def steps(self) -> Iterator[tuple[float, bool]]:
        """For each micro-batch of a pass: the weight of its loss, and whether the optimizer steps after it."""
        full, tail = divmod(len(cast(Sized, self.source)), self.plan.batch)
        for _ in range(full):
            yield from self._group(self.plan.batch)
        if tail and not self.drop_last:
            yield from self._group(tail)

    def _group(self, samples: int) -> Iterator[tuple[float, bool]]:
        sizes = self.plan.sizes(samples)
        for k, size in enumerate(sizes, start=1):
            yield size * self.plan.world / samples, k == len(sizes)

    def _order(self) -> Iterable[int]:
        if self.seed is None:
            return self.source
        source = copy.copy(self.source)
        source.generator = torch.Generator().manual_seed(self.seed + self.epoch)  # type: ignore[attr-defined]
        return source


def counted(accumulation: int) -> Iterator[tuple[float, bool]]:
    """`GlobalBatches.steps` for a stream of unknown length: equal weights."""
    for k in itertools.count(1):
        yield 1 / accumulation, k % accumulation == 0
