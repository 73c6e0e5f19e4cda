from __future__ import annotations

import itertools
import resource
from collections import defaultdict, namedtuple
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from autotune.runtime.applier import Training, create_appliers
from autotune.runtime.loader import arguments, mover, own_share, samples_of_epoch, workers
from autotune.runtime.open_files import raise_limit
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    get_worker_info,
)

from autotune.knobs.settings import Settings
from autotune.runtime.session import Session

from .records import quiet, shuffled

CPU = torch.device("cpu")
Pair = namedtuple("Pair", "left right")


class Numbers(Dataset[int]):
    """0, 1, 2, ..."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        return index


class Stream(IterableDataset[int]):
    """0 to 9, all of it in every worker."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


class SharedStream(Stream):
    """0 to 9, shared out among workers."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        return itertools.islice(range(10), info.id if info else 0, None, info.num_workers if info else 1)


class OwnLoader(DataLoader[Any]):
    """A user's subclass."""


class OwnBatches(BatchSampler):
    """A user's subclass."""


@pytest.mark.parametrize("timeout", [0, 5])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize(("count", "prefetch"), [(0, None), (0, 4), (1, None), (2, 1)])
def test_every_combination_gives_a_batch(count: int, prefetch: int | None, persistent: bool, timeout: float) -> None:
    own = DataLoader(
        Numbers(),
        batch_size=4,
        num_workers=1,
        timeout=timeout,
        multiprocessing_context="fork",
        persistent_workers=persistent,
    )
    training = Training(Settings(num_workers=count, prefetch_factor=prefetch, pin_memory=True), None, CPU)
    create_appliers(training)
    wanted = arguments(own, CPU, count)
    for applier in training.appliers.values():
        applier.loader(own, wanted)
    made = DataLoader(**wanted, batch_size=4)
    assert made.persistent_workers is (persistent and count > 0)
    assert torch.equal(next(iter(made)), torch.arange(4))
    assert not made.pin_memory


def test_a_rebuild_keeps_everything_else() -> None:
    def collate(items: list[int]) -> int:
        return sum(items)

    def start(worker: int) -> None:
        pass

    generator = torch.Generator()
    sampler = RandomSampler(Numbers(), generator=generator)
    own = DataLoader(
        Numbers(),
        4,
        sampler=sampler,
        collate_fn=collate,
        drop_last=True,
        worker_init_fn=start,
        generator=generator,
        num_workers=1,
        timeout=3,
        multiprocessing_context="fork",
    )
    with Session(quiet(batch_size=4, num_workers=2), device="cpu") as session:
        prepared = session.prepare(own)
        made = prepared.loader
    assert made is not own
    assert (made.num_workers, made.persistent_workers, made.prefetch_factor) == (2, False, 2)
    assert (made.collate_fn, made.worker_init_fn, made.timeout) == (collate, start, 3)
    assert (prepared.sampler, prepared.generator, prepared.drop_last) == (sampler, generator, True)
    assert (prepared.batch_size, len(prepared)) == (4, 2)
    assert made.multiprocessing_context.get_start_method() == "fork"
    assert (own.num_workers, own.prefetch_factor) == (1, 2)


@pytest.mark.parametrize(
    ("own", "why"),
    [
        (OwnLoader(Numbers(), batch_size=4), "subclass"),
        (DataLoader(Numbers(), batch_sampler=OwnBatches(SequentialSampler(Numbers()), 4, False)), "OwnBatches"),
        (DataLoader(Numbers(), batch_size=None), "does not batch"),
    ],
)
def test_what_cannot_be_rebuilt_is_left_alone_and_said(own: DataLoader[Any], why: str) -> None:
    with Session(quiet(batch_size=4, num_workers=2), device="cpu") as session:
        prepared = session.prepare(own)
        assert prepared.loader is own
        assert why in dict(session.not_applied)["num_workers"]
        batches = list(prepared)
        assert len(batches) == len(prepared) == len(own)
        assert session.part.weight == 1.0


@pytest.mark.parametrize(("own", "wanted", "used"), [(0, 0, 0), (0, 1, 0), (0, 2, 0), (1, 2, 1), (2, 0, 2)])
@pytest.mark.parametrize("stream", [Stream(), SharedStream()])
def test_the_batches_of_a_stream_stay_as_they_are(stream: Stream, own: int, wanted: int, used: int) -> None:
    loader = DataLoader(stream, batch_size=4, num_workers=own)
    with Session(quiet(batch_size=4, num_workers=wanted), device="cpu") as session:
        prepared = session.prepare(loader)
        assert [batch.tolist() for batch in prepared] == [batch.tolist() for batch in loader]
        assert prepared.loader.num_workers == used
        assert ("num_workers" in dict(session.not_applied)) is (wanted != used)


@pytest.mark.parametrize(("own", "wanted", "used"), [(2, 0, 2), (2, 1, 1), (0, 2, 0), (0, 0, 0)])
def test_a_worker_init_fn_goes_on_running(own: int, wanted: int, used: int) -> None:
    loader = DataLoader(Numbers(), num_workers=own, worker_init_fn=print)
    assert workers(loader, wanted).count == used
    assert (workers(loader, wanted).why_not_more is None) is (wanted == used)


def test_a_dataset_that_asks_for_its_rank_shares_itself_out() -> None:
    class Ranked(Stream):
        def __iter__(self) -> Iterator[int]:
            return itertools.islice(range(10), self.place(), None)

        def place(self) -> int:
            return torch.distributed.get_rank()

    assert own_share(DataLoader(Stream()), 2) is None
    assert own_share(DataLoader(SharedStream()), 2) is None
    assert "Ranked" in (own_share(DataLoader(Ranked()), 2) or "")


@pytest.mark.parametrize(("samples", "batch"), [(64, 16), (12, 4)])
def test_max_replaces_the_batch_of_the_first_loader_only(samples: int, batch: int) -> None:
    with Session(quiet(batch_size=16), device="cpu", level="max") as session:
        training, second = session.prepare(shuffled(samples, 4), shuffled(40, 10, drop_last=True))
        assert (training.batch_size, len(training)) == (batch, samples // batch)
        assert [len(inputs) for inputs, _targets in training] == [batch] * len(training)
        assert (second.batch_size, len(second), len(list(second))) == (10, 4, 4)
        assert any("4 is kept" in note for note in session.notes) is (batch == 4)


class KnownLength(Stream):
    """A stream that knows its length."""

    def __len__(self) -> int:
        return 10


@pytest.mark.parametrize(
    ("make", "batch"),
    [
        (lambda: DataLoader(Numbers(), 2, sampler=SubsetRandomSampler([1, 2, 3, 4]), drop_last=True), 2),
        (lambda: DataLoader(Numbers(), 2, sampler=SubsetRandomSampler([1, 2, 3, 4])), 2),
        (lambda: DataLoader(Numbers(), 2, sampler=RandomSampler(Numbers(), True, 30), drop_last=True), 16),
        (lambda: DataLoader(Stream(), 2, drop_last=True), 2),
        (lambda: DataLoader(Stream(), 2), 16),
        (lambda: DataLoader(KnownLength(), 2, drop_last=True), 2),
    ],
)
def test_max_leaves_an_epoch_its_batches(make: Any, batch: int) -> None:
    with Session(quiet(batch_size=16), device="cpu", level="max") as session:
        loader = session.prepare(make())
        assert loader.batch_size == batch
        assert len(list(loader)) > 0
        assert any("batch of 2 is kept" in note for note in session.notes) is (batch == 2)


def test_samples_of_an_epoch_are_those_of_a_worker() -> None:
    assert samples_of_epoch(DataLoader(KnownLength(), num_workers=2)) == 5
    assert samples_of_epoch(DataLoader(Stream(), num_workers=2)) is None


def test_batches_move_in_whatever_they_come() -> None:
    class Record:
        def to(self, device: torch.device) -> str:
            return f"on {device}"

    move = mover(torch.device("meta"), non_blocking=False)
    assert move is not None
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    nested = defaultdict(list, {"a": [torch.ones(1)]})
    moved = move(
        {"pair": Pair(torch.ones(2), [torch.ones(2), "text"]), "record": Record(), "packed": packed, "nested": nested}
    )
    assert moved["pair"].left.device.type == moved["pair"].right[0].device.type == "meta"
    assert (moved["pair"].right[1], moved["record"]) == ("text", "on meta")
    assert type(moved["packed"]) is type(packed)
    assert moved["packed"].data.device.type == "meta"
    assert (type(moved["nested"]), moved["nested"]["a"][0].device.type) == (defaultdict, "meta")
    assert moved["nested"]["missing"] == []
    assert nested["a"][0].device.type == "cpu"
    assert mover(CPU, non_blocking=False) is None


def test_the_soft_limit_of_open_files_is_raised_and_put_back() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = min(soft, 256)
    resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
    try:
        with Session(quiet(batch_size=4, num_workers=1), device="cpu") as session:
            session.prepare(shuffled(8, 4))
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (low, hard)
        assert raise_limit() is not None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
