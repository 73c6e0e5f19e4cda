"""Loaders: workers and batches change in place, and only where they differ; batches arrive on the device."""

import copy
from collections import defaultdict, namedtuple
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
)

from autotune.knobs.task_facts import Fingerprint
from autotune.runtime import fingerprints, sharing
from autotune.runtime.served_loaders import PASSES, served
from autotune.runtime.session import Session
from tests.torch.records import quiet, workers_of

CPU, META = torch.device("cpu"), torch.device("meta")
Pair = namedtuple("Pair", "left right")


class Numbers(Dataset[int]):
    """0 to 9."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        return index


class Stream(IterableDataset[int]):
    """0 to 9."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


class KnownLength(Stream):
    """A stream that knows its length."""

    def __len__(self) -> int:
        return 10


def _zipped(first: Any, second: Any) -> list[Any]:
    return [(a.tolist(), b.tolist()) for _ in range(2) for a, b in zip(first, second, strict=True)]


def _draws_in_between(first: Any, second: Any) -> list[Any]:
    batches = iter(first)
    return [torch.rand(2).tolist(), [batch.tolist() for batch in batches], next(iter(second)).tolist()]


def _made_together(first: Any, second: Any) -> list[Any]:
    one, other = iter(first), iter(second)
    return [[batch.tolist() for batch in other], [batch.tolist() for batch in one], torch.rand(1).item()]


@pytest.mark.parametrize("train", [_zipped, _draws_in_between, _made_together])
@pytest.mark.parametrize(("own", "tuned"), [(0, 1), (1, 0), (1, 2)])
def test_the_order_of_random_numbers_stays_with_other_workers(train: Any, own: int, tuned: int) -> None:
    found = []
    for settings in (None, quiet(num_workers=tuned)):
        loaders = [DataLoader(Numbers(), 2, shuffle=True, num_workers=own) for _ in range(2)]
        with Session(settings, device="cpu") as session:
            session.prepare(*loaders)
            torch.manual_seed(5)
            found.append(train(*loaders))
        assert all("_get_iterator" not in vars(loader) for loader in loaders)
    assert found[0] == found[1]


@pytest.mark.parametrize(("level", "batch"), [("max", 32), ("amp", 8), ("safe", 8), (None, 8)])
def test_max_takes_the_profiles_batch_and_safe_the_users(level: str | None, batch: int) -> None:
    loader = DataLoader(TensorDataset(torch.ones(64, 1)), 8, shuffle=True)
    with Session(quiet(batch_size=32), device="cpu", level=level) as session:
        session.prepare(loader)
        assert loader.batch_size == len(next(iter(loader))[0]) == batch
        assert any("your batch of 8 is kept" in note for note in session.notes) is (level in ("safe", "amp"))
    assert loader.batch_size == len(next(iter(loader))[0]) == 8


@pytest.mark.parametrize(("tuned", "batch"), [(True, 16), (False, 4)])
def test_max_changes_the_batch_beside_a_tuned_model_only(tuned: bool, batch: int) -> None:
    """And a schedule that was made before `prepare` is said to be wrong then."""
    model, loader = torch.nn.Linear(1, 1), DataLoader(TensorDataset(torch.ones(64, 1)), 4, shuffle=True)
    compared = Fingerprint((fingerprints.of_model(model),) * tuned, (), ())
    with Session(quiet(batch_size=16), device="cpu", level="max", compared=compared) as session:
        session.prepare(loader, model)
        assert loader.batch_size == batch
        assert any("len(loader) has changed" in note for note in session.notes) is tuned


@pytest.mark.parametrize(("samples", "batch"), [(64, 16), (12, 4)])
def test_max_replaces_the_batch_of_the_first_loader_only(samples: int, batch: int) -> None:
    training = DataLoader(TensorDataset(torch.ones(samples, 1)), 4, shuffle=True)
    second = DataLoader(TensorDataset(torch.ones(40, 1)), 10, shuffle=True, drop_last=True)
    with Session(quiet(batch_size=16), device="cpu", level="max") as session:
        session.prepare(training, second)
        assert (training.batch_size, len(training)) == (batch, samples // batch)
        assert (second.batch_size, len(second), len(list(second))) == (10, 4, 4)


@pytest.mark.parametrize(
    ("make", "batch"),
    [
        (lambda: DataLoader(Numbers(), 2, sampler=SubsetRandomSampler([1, 2, 3, 4])), 2),
        (lambda: DataLoader(Numbers(), 2, sampler=RandomSampler(Numbers(), True, 30), drop_last=True), 16),
        (lambda: DataLoader(Stream(), 2, drop_last=True), 2),
        (lambda: DataLoader(KnownLength(), 2, drop_last=True), 2),
        (lambda: DataLoader(Numbers(), batch_sampler=BatchSampler(SequentialSampler(Numbers()), 2, False)), None),
    ],
)
def test_max_leaves_an_epoch_its_batches(make: Any, batch: int | None) -> None:
    loader = make()
    with Session(quiet(batch_size=16), device="cpu", level="max") as session:
        session.prepare(loader)
        assert loader.batch_size == batch
        assert len(list(loader)) > 0
        assert ("batch_size" in dict(session.not_applied)) is (batch != 16)


def test_a_loader_that_was_not_compared_keeps_its_workers() -> None:
    class Other(Numbers):
        """Reads otherwise."""

        def __getitem__(self, index: int) -> int:
            return index + 1

    compared = Fingerprint(loaders=(fingerprints.of_loader(DataLoader(Numbers())),))
    known, other = DataLoader(Numbers(), 2), DataLoader(Other(), 2)
    with Session(quiet(num_workers=1), device="cpu", compared=compared) as session:
        session.prepare(known, other)
        assert (workers_of(known), workers_of(other)) == (1, 0)
        assert "not the one that was tuned" in dict(session.not_applied)["num_workers"]


def test_batches_move_in_whatever_they_come() -> None:
    class Record:
        def to(self, device: torch.device) -> str:
            return f"on {device}"

    move = sharing.mover(META)
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    nested = defaultdict(list, {"a": [torch.ones(1)]})
    pair = Pair(torch.ones(2), [torch.ones(2), "text"])
    moved = move({"pair": pair, "record": Record(), "packed": packed, "nested": nested})
    assert moved["pair"].left.device.type == moved["pair"].right[0].device.type == "meta"
    assert (moved["pair"].right[1], moved["record"]) == ("text", "on meta")
    assert (type(moved["packed"]), moved["packed"].data.device.type) == (type(packed), "meta")
    assert (type(moved["nested"]), moved["nested"]["a"][0].device.type) == (defaultdict, "meta")
    assert moved["nested"]["missing"] == []
    assert nested["a"][0].device.type == "cpu"
    assert sharing.mover(CPU) is None


def test_a_loader_whose_batches_move_stays_a_loader() -> None:
    """Its class says nothing else, its iterator is PyTorch's own, and copies are plain."""
    loader = DataLoader(TensorDataset(torch.ones(4, 1)), 2)
    change = served(loader, **{PASSES: lambda begin: sharing.Passing(begin(), sharing.mover(META))})
    assert isinstance(loader, DataLoader)
    assert (type(loader).__name__, type(loader).__module__) == ("DataLoader", DataLoader.__module__)
    passing = iter(loader)
    assert len(passing) == 2  # type: ignore[arg-type]
    assert passing._num_workers == 0  # type: ignore[attr-defined]
    assert next(passing)[0].device.type == "meta"
    twin = copy.copy(loader)
    assert (type(twin), next(iter(twin))[0].device.type) == (DataLoader, "cpu")
    change.undo()
    assert type(loader) is DataLoader
    assert next(iter(loader))[0].device.type == "cpu"
