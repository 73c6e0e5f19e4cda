from __future__ import annotations

import itertools
import resource
from collections import namedtuple
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
    get_worker_info,
)

from autotune.core.settings import Settings
from autotune.runtime import switches
from autotune.runtime.loader import arguments, mover, shards_itself
from autotune.runtime.session import Session

from .records import dataset, quiet, shuffled

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


@pytest.mark.parametrize("timeout", [0, 5])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize(("workers", "prefetch"), [(0, None), (0, 4), (1, None), (2, 1)])
def test_every_combination_gives_a_batch(workers: int, prefetch: int | None, persistent: bool, timeout: float) -> None:
    own = DataLoader(Numbers(), batch_size=4, num_workers=1, timeout=timeout, multiprocessing_context="fork")
    settings = Settings(num_workers=workers, prefetch_factor=prefetch, persistent_workers=persistent, pin_memory=True)
    made = DataLoader(**arguments(own, settings, CPU, workers), batch_size=4)
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
    with Session(quiet(batch_size=4, num_workers=2, persistent_workers=True), device="cpu") as session:
        made = session.prepare(own).loader
    assert made is not own
    assert (made.num_workers, made.persistent_workers, made.prefetch_factor) == (2, True, 2)
    assert (made.sampler, made.collate_fn, made.worker_init_fn) == (sampler, collate, start)
    assert (made.drop_last, made.timeout, made.generator, made.batch_size) == (True, 3, generator, 4)
    assert made.multiprocessing_context.get_start_method() == "fork"
    assert (own.num_workers, own.prefetch_factor) == (1, 2)


@pytest.mark.parametrize(
    ("own", "why"),
    [
        (OwnLoader(Numbers(), batch_size=4), "subclass"),
        (DataLoader(Numbers(), batch_sampler=BatchSampler(SequentialSampler(Numbers()), 4, False)), "batch_sampler"),
        (DataLoader(Numbers(), batch_size=None), "does not batch"),
    ],
)
def test_what_cannot_be_rebuilt_is_left_alone_and_said(own: DataLoader[Any], why: str) -> None:
    with Session(quiet(batch_size=2, accumulation=2, num_workers=2), device="cpu") as session:
        prepared = session.prepare(own)
        assert prepared.loader is own
        assert why in dict(session.not_applied)["num_workers"]
        batches = list(prepared)
        assert len(batches) == len(prepared) == len(own)
        assert session.weight == 1.0


@pytest.mark.parametrize(("stream", "workers"), [(Stream(), 0), (SharedStream(), 2)])
def test_streams_are_never_read_twice(stream: Stream, workers: int) -> None:
    with Session(quiet(batch_size=4, num_workers=2), device="cpu") as session:
        prepared = session.prepare(DataLoader(stream, batch_size=4))
        assert sorted(torch.cat(list(prepared)).tolist()) == list(range(10))
        assert prepared.num_workers == workers
        assert ("num_workers" in dict(session.not_applied)) is (workers == 0)
    assert shards_itself(stream) is (workers == 2)


def test_the_last_batch_of_a_stream_is_a_boundary() -> None:
    with Session(quiet(batch_size=2, accumulation=2), device="cpu") as session:
        prepared = session.prepare(DataLoader(Stream(), batch_size=4))
        boundaries = [session._progress.boundary for _ in prepared]
    assert boundaries == [False, True, False, True, True]


def test_later_loaders_in_fixed_order_keep_whole_batches() -> None:
    with Session(quiet(batch_size=2, accumulation=4, num_workers=1), device="cpu") as session:
        training, evaluation, second = session.prepare(
            shuffled(16, 8), DataLoader(dataset(16), batch_size=8), shuffled(16, 8)
        )
        assert (training.batch_size, evaluation.batch_size, second.batch_size) == (2, 8, 2)
        assert evaluation.num_workers == 1
        for _ in training:
            at = session.weight, session._progress.boundary
            assert len(list(evaluation)) == 2
            assert (session.weight, session._progress.boundary) == at


def test_a_pass_left_half_way_restores_the_boundary() -> None:
    with Session(quiet(batch_size=2, accumulation=4), device="cpu") as session:
        loader = session.prepare(shuffled(16, 8))
        for _ in loader:
            assert not session._progress.boundary
            break
        assert session._progress.boundary


def test_batches_move_in_whatever_they_come() -> None:
    class Record:
        def to(self, device: torch.device) -> str:
            return f"on {device}"

    move = mover(torch.device("meta"), channels_last=True, non_blocking=False)
    assert move is not None
    image = torch.ones(2, 3, 4, 4)
    moved = move({"pair": Pair(image, [torch.ones(2), "text"]), "record": Record(), "number": 3})
    assert moved["pair"].left.device.type == moved["pair"].right[0].device.type == "meta"
    assert moved["pair"].left.is_contiguous(memory_format=torch.channels_last)
    assert (moved["pair"].right[1], moved["record"], moved["number"]) == ("text", "on meta", 3)
    assert mover(CPU, channels_last=False, non_blocking=False) is None


def test_the_soft_limit_of_open_files_is_raised_and_put_back() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = min(soft, 256)
    resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
    try:
        with Session(quiet(batch_size=4, num_workers=1), device="cpu") as session:
            session.prepare(shuffled(8, 4))
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (low, hard)
        assert switches.raise_open_files().refused is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
