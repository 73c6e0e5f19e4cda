"""Loaders of one of several processes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from autotune.scripts.apply import SharedBatch
from autotune.scripts.hooks import Hooks

DATA = TensorDataset(torch.zeros(64, 1))
SIGNATURE = inspect.signature(DataLoader.__init__)


@pytest.fixture
def shared() -> Iterator[None]:
    """Two processes share a batch of 16 of 64 samples."""
    hooks = Hooks()
    hooks.shared_batch = SharedBatch(batch=16, share=8, samples=64)
    hooks.install()
    yield
    hooks.remove()


@pytest.mark.usefixtures("shared")
def test_the_loader_of_the_training_data_gets_its_share() -> None:
    for loader in (
        DataLoader(DATA, 16),
        DataLoader(DATA, batch_size=16, shuffle=True),
        DataLoader(dataset=DATA, batch_size=16),
    ):
        assert loader.batch_size == 8
        assert len(loader) == 8
        assert len(next(iter(loader))[0]) == 8


@pytest.mark.usefixtures("shared")
def test_other_loaders_are_left_alone() -> None:
    batches = BatchSampler(RandomSampler(DATA), 16, drop_last=False)
    others = (
        DataLoader(TensorDataset(torch.zeros(32, 1)), 16),
        DataLoader(DATA, 4),
        DataLoader(DATA, batch_sampler=batches),
        DataLoader(DATA, batch_size=None),
        DataLoader(DATA),
    )
    assert [loader.batch_size for loader in others] == [16, 4, None, None, 1]


@pytest.mark.usefixtures("shared")
def test_nobody_sees_it() -> None:
    assert inspect.signature(DataLoader.__init__) == SIGNATURE
    with pytest.raises(TypeError):
        DataLoader()  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("batch", "world", "words"),
    [(8, 2, None), (16, 2, "would train on batches of 16"), (8, 1, "its process group has 1")],
)
def test_processes_that_would_not_share_are_told_from_those_that_do(
    batch: int, world: int, words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: world)
    reason = SharedBatch(batch=16, share=8, samples=64).why_not(DataLoader(DATA, batch))
    assert (reason is None) == (words is None)
    assert words is None or words in str(reason)


def test_one_process_keeps_its_batch() -> None:
    original = DataLoader.__init__
    hooks = Hooks()
    hooks.install()
    assert DataLoader.__init__ is original
    hooks.remove()
