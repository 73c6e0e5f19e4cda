from __future__ import annotations

import pytest
from autotune.runtime.dealing import batch_to_train_with, deal, largest_part, said_of
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, SequentialSampler

from autotune.knobs.settings import Settings
from autotune.runtime.loaders import length
from autotune.runtime.shards import cut


@given(
    samples=st.integers(1, 200),
    world=st.integers(1, 9),
    batch=st.integers(1, 200),
    fixed=st.booleans(),
    equal=st.booleans(),
)
def test_parts_make_up_the_batch_with_weights_that_average_to_one(
    samples: int, world: int, batch: int, fixed: bool, equal: bool
) -> None:
    full = max(batch, samples) if fixed else None
    own = list(range(samples))
    parts = [deal(own, world, rank, full, equal=equal) for rank in range(world)]
    assert {sample for part in parts for sample in part.samples} == set(own)
    assert all(part.samples for part in parts)
    if full is not None and not equal and samples > 3:
        assert max(len(part.samples) for part in parts) <= max(3, largest_part(full, world))
    if equal:
        assert all(part.weight == pytest.approx(1) for part in parts)
    assert samples < 2 or min(len(part.samples) for part in parts) > 1, "BatchNorm cannot normalise over one sample"
    weights = dict.fromkeys(own, 0.0)  # what each sample counts in the average over processes
    for part in parts:
        for sample in part.samples:
            weights[sample] += part.weight / len(part.samples) / world
    assert all(weight == pytest.approx(1 / samples) for weight in weights.values())
    assert sum(part.share * len(part.samples) for part in parts) == pytest.approx(samples)


@pytest.mark.parametrize(
    ("samples", "batch", "world", "sizes"),
    [
        (64, 64, 2, [32, 32]),
        (50, 50, 4, [13, 13, 12, 12]),
        (2, 64, 2, [2, 2]),  # a ragged last batch goes whole to everybody: BatchNorm cannot normalise over one sample
        (32, 64, 2, [32, 32]),
        (33, 64, 2, [17, 16]),
        (63, 64, 2, [32, 31]),
        (9, 64, 8, [5, 4, 5, 4, 5, 4, 5, 4]),
        (1, 64, 2, [1, 1]),
        (3, 6, 3, [3, 3, 3]),
    ],
)
def test_ragged_batches_leave_nobody_with_a_single_sample(
    samples: int, batch: int, world: int, sizes: list[int]
) -> None:
    assert [len(deal(range(samples), world, rank, batch).samples) for rank in range(world)] == sizes


@pytest.mark.parametrize(("samples", "world", "sizes"), [(33, 2, [33, 33]), (34, 2, [17, 17]), (24, 8, [12] * 8)])
def test_parts_of_two_loaders_weigh_the_same(samples: int, world: int, sizes: list[int]) -> None:
    parts = [deal(range(samples), world, rank, 64, equal=True) for rank in range(world)]
    assert [len(part.samples) for part in parts] == sizes
    assert {part.weight for part in parts} == {1.0}


@given(samples=st.integers(0, 50), size=st.integers(1, 12), drop_last=st.booleans())
def test_batches_are_cut_as_pytorch_cuts_them(samples: int, size: int, drop_last: bool) -> None:
    source = SequentialSampler(range(samples))
    assert list(cut(iter(source), size, drop_last=drop_last)) == list(BatchSampler(source, size, drop_last))


@pytest.mark.parametrize(
    ("level", "samples", "batch"), [("max", 1000, 64), ("max", None, 64), ("max", 40, 16), ("amp", 1000, 16)]
)
def test_only_max_replaces_the_batch_and_only_where_the_data_suffice(
    level: str, samples: int | None, batch: int
) -> None:
    assert batch_to_train_with(16, Settings(batch_size=64), level, samples) == batch


def test_another_batch_than_the_measured_one_is_said() -> None:
    assert said_of(64, 64, Settings(batch_size=64)) is None
    assert said_of(16, 16, None) is None
    assert "16 is kept" in (said_of(16, 16, Settings(processes=2, batch_size=32)) or "")


def test_lengths_may_be_missing() -> None:
    class Raises:
        def __len__(self) -> int:
            raise TypeError("an inner dataset has none")

    assert (length([1, 2]), length(iter([])), length(Raises())) == (2, None, None)
