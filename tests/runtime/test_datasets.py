from __future__ import annotations

import random
from typing import Any

import numpy
import pytest
import torch
from autotune.runtime.datasets import fingerprint, keeps_state
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from autotune.runtime.session import Session

from .records import quiet


class Plain(Dataset[int]):
    """Reads and writes nothing."""

    def __init__(self) -> None:
        self.values = list(range(8))

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        local = [0]
        local[0] = self.values[index]
        return local[0]


class Counting(Plain):
    """Counts its reads, through a method."""

    reads = 0

    def __getitem__(self, index: int) -> int:
        self._count()
        return super().__getitem__(index)

    def _count(self) -> None:
        self.reads += 1


class Endless(Plain):
    """Goes on where it stood."""

    def __init__(self) -> None:
        super().__init__()
        self.stream = iter(range(1000))

    def __getitem__(self, index: int) -> int:
        return next(self.stream)


class ByEpoch(IterableDataset[int]):
    """Another order in each pass."""

    epoch = 0

    def __iter__(self) -> Any:
        self.epoch += 1
        return iter([self.epoch, 10 * self.epoch])


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (Plain(), None),
        (TensorDataset(torch.ones(3)), None),
        (ConcatDataset([Plain(), TensorDataset(torch.ones(3))]), None),
        ([1, 2, 3], None),
        (Counting(), "Counting changes itself"),
        (Subset(Counting(), [1, 2]), "Counting changes itself"),
        (ConcatDataset([Plain(), Counting()]), "Counting changes itself"),
    ],
)
def test_a_dataset_that_keeps_state_is_told(dataset: Any, words: str | None) -> None:
    reason = keeps_state(dataset)
    assert reason is None if words is None else words in (reason or "")


@pytest.mark.parametrize("make", [Counting, Endless, ByEpoch])
def test_its_reads_stay_in_this_process(make: Any) -> None:
    plain, ours = make(), make()
    expected = [batch.tolist() for _ in range(3) for batch in DataLoader(plain, batch_size=2)]
    with Session(quiet(batch_size=2, num_workers=2), device="cpu") as session:
        loader = session.prepare(DataLoader(ours, batch_size=2))
        assert [batch.tolist() for _ in range(3) for batch in loader] == expected
        assert "kept at 0" in dict(session.not_applied)["num_workers"]
    assert vars(ours).get("reads") == vars(plain).get("reads")


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: Subset(Plain(), torch.randperm(8, generator=torch.Generator().manual_seed(seed)).tolist()),
        lambda seed: TensorDataset(torch.randn(40, 4, generator=torch.Generator().manual_seed(seed))),
        lambda seed: Subset(TensorDataset(torch.full((9,), float(seed))), range(4)),
        lambda seed: random.Random(seed).sample(range(100), 20),
        lambda seed: numpy.random.default_rng(seed).normal(size=30),
    ],
)
def test_datasets_made_apart_are_told_apart(make: Any) -> None:
    assert fingerprint(make(1)) == fingerprint(make(1))
    assert fingerprint(make(1)) != fingerprint(make(2))


def test_what_the_user_changes_on_his_loader_is_in_force() -> None:
    with Session(quiet(batch_size=2, num_workers=1), device="cpu") as session:
        loader = session.prepare(DataLoader(Plain(), batch_size=2))
        loader.collate_fn = sum
        assert list(loader) == [1, 5, 9, 13]
        loader.batch_sampler.batch_size = 4
        assert list(loader) == [6, 22]
        with pytest.raises(ValueError, match="dataset"):
            loader.dataset = Plain()


def test_workers_that_come_new_give_batches_in_order() -> None:
    own: DataLoader[Any] = DataLoader(Plain(), batch_size=1, in_order=False)
    with Session(quiet(batch_size=1, num_workers=2), device="cpu") as session:
        loader = session.prepare(own)
        assert loader.loader.in_order
        assert [batch.item() for batch in loader] == list(range(8))
