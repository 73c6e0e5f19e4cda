"""Data loaders: one builder a value of the axis."""

import functools
import random
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler, WeightedRandomSampler

from tests.same_training import data
from tests.same_training.case import BATCH, Case


class Shuffle(Sampler[int]):
    """A user's own sampler with a random source of its own."""

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.random = count, random.Random(seed)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        yield from self.random.sample(range(self.count), self.count)


class Unsized:
    """A sampler that does not know its length."""

    def __init__(self, count: int, seed: int) -> None:
        self.inner = Shuffle(count, seed)

    def __iter__(self) -> Iterator[int]:
        return iter(self.inner)


class ByEpoch(Shuffle):
    """A sampler whose order follows ``set_epoch``, which the user calls."""

    def __init__(self, count: int, seed: int) -> None:
        super().__init__(count, seed)
        self.seed, self.epoch = seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next pass."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        yield from random.Random(self.seed + self.epoch).sample(range(self.count), self.count)


class OwnLoader(DataLoader[Any]):
    """A subclass, which the runtime cannot know."""


DATASETS: dict[str, type[data.Samples]] = {
    "worker_init": data.OpenedInWorker,
    "keeps_state": data.KeepsState,
    "open_file": data.OpenFile,
    "fails": data.Fails,
}
"""Datasets of loaders that need their own."""


def train(case: Case, seed: int, batch: int = BATCH) -> DataLoader[Any]:
    """The loader that is trained on. ``seed``: of this process's own samplers and generators."""
    kind, count = case.kind, case.samples
    samples = DATASETS.get(case.loader, data.Samples)(kind, count)
    options: dict[str, Any] = {"collate_fn": functools.partial(data.collate, case.batches)}
    if case.loader == "batch_sampler":
        own = BatchSampler(RandomSampler(samples), batch, drop_last=False)
        return DataLoader(samples, batch_sampler=own, **options)
    options |= {"batch_size": batch, **_order(case, samples, seed)}
    if case.loader in ("stream", "stream_sharded"):
        stream = data.Stream(samples) if case.loader == "stream" else data.ShardedStream(samples)
        return DataLoader(stream, **options)
    return (OwnLoader if case.loader == "subclass" else DataLoader)(samples, **options)


def _order(case: Case, samples: data.Samples, seed: int) -> dict[str, Any]:
    own = {"sampler": Shuffle, "sampler_unsized": Unsized, "sampler_epochs": ByEpoch}
    if case.loader in own:
        return {"sampler": own[case.loader](len(samples), seed)}
    if case.loader == "weighted":
        weights = torch.linspace(0.1, 1, len(samples))
        return {"sampler": WeightedRandomSampler(weights.tolist(), len(samples))}
    generator = torch.Generator().manual_seed(seed)
    return {
        "sequential": {},
        "stream": {},
        "stream_sharded": {},
        "generator": {"shuffle": True, "generator": generator},
        "drop_last": {"shuffle": True, "drop_last": True},
        "worker_init": {"shuffle": True, "num_workers": 1, "worker_init_fn": data.open_in_worker},
        "persistent": {"shuffle": True, "num_workers": 1, "persistent_workers": True, "generator": generator},
        "changing_workers": {"shuffle": True, "num_workers": 1},
    }.get(case.loader, {"shuffle": True})


def evaluation(case: Case, *, shuffle: bool) -> DataLoader[Any]:
    """The loader for evaluation, with a ragged tail."""
    collate = functools.partial(data.collate, case.batches)
    return DataLoader(data.Samples(case.kind, 7, first=40), batch_size=4, shuffle=shuffle, collate_fn=collate)


def second(case: Case) -> DataLoader[Any]:
    """A second loader to train on, zipped with the first."""
    collate = functools.partial(data.collate, case.batches)
    return DataLoader(data.Samples(case.kind, 21, first=28), batch_size=BATCH, shuffle=True, collate_fn=collate)


def next_epoch(case: Case, loader: Any, epoch: int) -> None:
    """What a user does between epochs."""
    if case.loader in ("changing", "changing_workers"):
        loader.dataset.epoch = epoch
    if case.loader == "sampler_epochs" and hasattr(loader.sampler, "set_epoch"):
        loader.sampler.set_epoch(epoch)
