"""The order in which a loader reads its samples, drawn when plain PyTorch draws it.

Loader workers ask for samples ahead of time. So that this changes nothing, only samplers whose whole order is settled
by their first draw are read ahead; what they draw after their last sample waits until plain PyTorch would do it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from autotune.runtime.dealing import cut

SETTLED = (SequentialSampler, SubsetRandomSampler, WeightedRandomSampler, DistributedSampler)
"""Samplers whose first draw settles the order. A `RandomSampler` is one too where `settled` says so."""


def settled(loader: DataLoader[Any]) -> str | None:
    """Why the order of ``loader`` may depend on what happens during the pass, or None."""
    batches = loader.batch_sampler
    if type(batches) is not BatchSampler:
        return f"{type(batches).__name__} decides about each batch when it is read"
    sampler = batches.sampler  # not the loader's: where the user gives a batch_sampler, that one is not used
    if type(sampler) is RandomSampler:
        at_once = not sampler.replacement and sampler.num_samples == len(sampler.data_source)
        return None if sampler.generator is None or at_once else "RandomSampler draws from a generator as it goes"
    return None if type(sampler) in SETTLED else f"{type(sampler).__name__} decides about each sample when it is read"


class Order:
    """The batches of one pass of a `settled` loader.

    Args:
        loader: the user's.
        batches: its batch sampler.
        size: samples of a batch.
    """

    def __init__(self, loader: DataLoader[Any], batches: BatchSampler, size: int) -> None:
        self.sampler: Any = batches.sampler
        self.size, self.drop_last = size, batches.drop_last
        self._all: Iterator[Any] | None = None
        self._unread: Iterator[Any] = iter(())
        self._kept: tuple[Any, ...] = ()
        self._ahead = loader.num_workers * (loader.prefetch_factor or 0)
        self._left = 0
        self.again()

    def __iter__(self) -> Iterator[list[Any]]:
        self._all = iter(self.sampler)
        self._unread = islice(self._all, len(self.sampler))
        yield from cut(self._samples(), self.size, drop_last=self.drop_last)

    def again(self) -> None:
        """The batches are asked for from the first one on."""
        self._left = len(self.sampler) // self.size - self._ahead

    def _samples(self) -> Iterator[Any]:
        yield from self._unread
        yield from self._kept

    def asked(self) -> None:
        """The loop has asked for one more batch: draw what the sampler draws at its end, if it is time for that."""
        self._left -= 1
        if self._left < 0 and self._all is not None:
            self._kept = tuple(self._unread)
            next(self._all, None)
            self._all = None


def order_of(loader: DataLoader[Any], size: int | None) -> Iterable[Any]:
    """The batches of a pass that begins now.

    Args:
        loader: the user's.
        size: samples of a batch, where it is not the user's own.
    """
    batches: Any = loader.batch_sampler
    if type(batches) is not BatchSampler:
        return batches  # type: ignore[no-any-return]
    if settled(loader) is None:
        return Order(loader, batches, size or batches.batch_size)
    return batches if size is None else cut(iter(batches.sampler), size, drop_last=batches.drop_last)


def count_of(loader: DataLoader[Any], size: int | None) -> int:
    """Batches of a pass."""
    batches: Any = loader.batch_sampler
    if size is None:
        return len(batches)
    full, ragged = divmod(len(batches.sampler), size)
    return full + (ragged > 0 and not batches.drop_last)


def begun(batches: Iterator[Any]) -> Iterator[Any]:
    """``batches`` with the first one drawn now."""
    return chain(list(islice(batches, 1)), batches)


def draw_base_seed(loader: DataLoader[Any]) -> torch.Tensor:
    """Draw what plain PyTorch draws when a pass begins. Returns the generator's state from before."""
    generator = loader.generator or torch.default_generator
    before = generator.get_state()
    torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
    return before
