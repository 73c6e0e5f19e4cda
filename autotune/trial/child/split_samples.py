"""Which samples are compared whole and split: parts that differ in what a loss may weigh by, such as size or class."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch

from autotune.trial.child.task_facts import tensor_bytes

LOOKED_AT = 1000
"""Most samples that are read: a class may be rare."""
READ_SECONDS = 0.3
READ_BYTES = 2**28
"""Reading ends after this time or size, but for the first few samples."""
FEW = 4
"""Samples of the first, cheapest comparison."""
ORDERS = 2
"""Orders of samples that are split in the middle, besides the random one."""
TRAITS = 32
"""Most traits of one sample, the last ones: labels often come last."""
SUMMED = {True: 2**20, False: 2**12}
"""Most whole or other numbers that are summed: masks, but not images."""

Trait = tuple[bool, float]
Order = list[int]
Split = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Sample:
    """One sample.

    Attributes:
        value: as the dataset gives it.
        size: of all its tensors, in bytes.
        traits: for each tensor or number in it, whether it is of whole numbers, and their sum: a label, or tokens and
            how many are padding.
    """

    value: Any
    size: int
    traits: tuple[Trait, ...]


@dataclass(frozen=True)
class SplitBatch:
    """One batch, and ways to split it between processes.

    Attributes:
        samples: of the batch.
        splits: each is the positions of samples in every part; each part is as large as half the batch, or smaller.
    """

    samples: tuple[Any, ...]
    splits: tuple[Split, ...]

    def parts(self, split: Split) -> list[list[Any]]:
        """The samples of every part."""
        return [[self.samples[position] for position in part] for part in split]


def read_samples(dataset: Any, clock: Callable[[], float]) -> list[Sample]:
    """Some samples in random order, each read once since augmentation is random.

    Evenly spaced ones would hold one class alone where classes come in turn.
    """
    length = len(dataset)
    found: list[Sample] = []
    started, size = clock(), 0
    for index in random.Random(0).sample(range(length), min(LOOKED_AT, length)):
        if len(found) >= FEW and (clock() - started > READ_SECONDS or size > READ_BYTES):
            break
        value = _value(dataset, index)
        found.append(Sample(value, tensor_bytes(value), tuple(_traits(value))[-TRAITS:]))
        size += found[-1].size
    return found


def _value(dataset: Any, index: int) -> Any:
    """As the DataLoader reads it."""
    together = getattr(dataset, "__getitems__", None)
    return together([index])[0] if together else dataset[index]


def _traits(value: Any) -> Iterator[Trait]:
    """Of every tensor, array, number and list of numbers in a nested sample."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple) and not (value and isinstance(value[0], bool | int | float)):
        for inner in value:
            yield from _traits(inner)
    elif isinstance(value, torch.Tensor) and not value.is_complex():
        exact = not value.is_floating_point()
        yield exact, float(value.detach().sum()) if value.numel() <= SUMMED[exact] else 0.0
    elif isinstance(value, numpy.ndarray | numpy.generic) and value.dtype.kind in "biuf":
        exact = value.dtype.kind != "f"
        yield exact, float(value.sum()) if value.size <= SUMMED[exact] else 0.0
    elif isinstance(value, list | tuple):
        yield isinstance(value[0], int), float(sum(value))
    elif isinstance(value, bool | int | float):
        yield isinstance(value, int), float(value)


def split_batches(samples: Sequence[Sample], most: int) -> list[SplitBatch]:
    """Batches of up to ``most`` samples, the most telling for their time first.

    A few extremes; one of pairs with the same label, which losses over pairs need; one spread over sizes and labels.
    """
    orders, by_label = _orders(samples)
    count = min(most, len(samples))
    found: list[SplitBatch] = []
    if count > FEW:
        found.append(_split_batch(samples, orders[0][: FEW // 2] + orders[0][-FEW // 2 :], orders[:1]))
    if count < len(samples):
        starts = _spread(list(range(len(samples) - 1)), count // 2)
        found.append(_split_batch(samples, [by_label[start + away] for start in starts for away in (0, 1)], []))
    return [*found, _split_batch(samples, _mixed(orders, count), orders)]


def _spread(order: Order, count: int) -> Order:
    """So many of ``order`` in equal distances, both ends included."""
    return [order[k * (len(order) - 1) // max(1, count - 1)] for k in range(count)]


def _mixed(orders: Sequence[Order], count: int) -> Order:
    """``count`` in all, spread over each order; over one alone where they are few."""
    used = orders[: max(1, count // FEW)]
    spread = (index for order in used for index in _spread(order, count // len(used)))
    return list(dict.fromkeys([*spread, *range(len(orders[0]))]))[:count]


def _split_batch(samples: Sequence[Sample], chosen: Order, orders: Sequence[Order]) -> SplitBatch:
    """The ``chosen`` samples, split in the middle of each order, and at random: in uneven parts where they are many."""
    kept = sorted(set(chosen))
    place = {index: position for position, index in enumerate(kept)}
    ranked = [tuple(place[index] for index in order if index in place) for order in (*orders, kept)]
    count = len(kept)
    splits: list[Split] = [(order[: count // 2], order[count // 2 :]) for order in ranked]
    if count >= 3 * FEW:
        bounds = (0, count // 6, count // 2, count)
        splits[-1] = tuple(ranked[-1][start:end] for start, end in itertools.pairwise(bounds))
    return SplitBatch(tuple(samples[index].value for index in kept), tuple(dict.fromkeys(splits)))


def _orders(samples: Sequence[Sample]) -> tuple[list[Order], Order]:
    """Orders by size, label and other traits, the most telling first, and the one by label."""
    as_read = list(range(len(samples)))
    counted, measured = _columns(samples)
    labels = [_ranked(column) for column in sorted(counted, key=lambda column: len(set(column)))]
    sizes = [_ranked(column) for column in ([float(one.size) for one in samples],) if _varies(column)]
    orders = _distinct([*sizes, *labels, *map(_ranked, measured)])
    return orders[:ORDERS] or [as_read], (labels or [as_read])[0]


def _columns(samples: Sequence[Sample]) -> tuple[list[list[float]], list[list[float]]]:
    """Each trait of all samples where it varies, the last first: of whole numbers, and of others."""
    if len({len(one.traits) for one in samples}) != 1:
        return [], []
    columns = list(zip(*(one.traits for one in samples), strict=True))[::-1]
    found = [(all(exact for exact, _ in column), [figure for _, figure in column]) for column in columns]
    varying = [(exact, figures) for exact, figures in found if _varies(figures)]
    return [figures for exact, figures in varying if exact], [figures for exact, figures in varying if not exact]


def _ranked(column: Sequence[float]) -> Order:
    return sorted(range(len(column)), key=column.__getitem__)


def _varies(column: Sequence[float]) -> bool:
    return len(set(column)) > 1


def _distinct(orders: Iterable[Order]) -> list[Order]:
    return [list(order) for order in dict.fromkeys(map(tuple, orders))]
