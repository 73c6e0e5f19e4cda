"""Shares of a batch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.runtime.shards import Progress, Shard, shard


@given(
    samples=st.integers(1, 200),
    world=st.integers(1, 9),
    batch=st.integers(1, 200),
    fixed=st.booleans(),
    equal=st.booleans(),
)
def test_parts_make_up_the_batch_with_weights_that_average_to_one(samples, world, batch, fixed, equal) -> None:
    full = max(batch, samples) if fixed else None
    own = list(range(samples))
    parts = [shard(own, world, rank, full, equal=equal) for rank in range(world)]
    assert {sample for part in parts for sample in part.samples} == set(own)
    assert all(part.samples for part in parts)
    if full is not None and not equal and samples > 3:
        assert max(len(part.samples) for part in parts) <= max(3, -(-full // world))
    if equal:
        assert all(part.weight == pytest.approx(1) for part in parts)
    assert samples < 2 or min(len(part.samples) for part in parts) > 1, "BatchNorm cannot normalise over one sample"
    weights = dict.fromkeys(own, 0.0)  # what each sample counts in the average over processes
    for part in parts:
        for sample in part.samples:
            weights[sample] += part.weight / len(part.samples) / world
    assert all(weight == pytest.approx(1 / samples) for weight in weights.values())
    assert sum(part.share * len(part.samples) for part in parts) == pytest.approx(samples)


def test_the_current_part_is_that_of_the_loader_that_is_read() -> None:
    class Reader:
        """A pass over a loader."""

    own, other, progress = Reader(), Reader(), Progress()
    assert progress.part == Shard([])
    progress.reads(own, Shard([1], 0.5))
    assert progress.part.weight == 0.5
    progress.reads(other, Shard([2], 0.5))
    assert not progress.mixed
    progress.steps += 1
    progress.reads(own, Shard([3], 0.5))
    progress.reads(other, Shard([4], 1.5))
    assert progress.mixed
    progress.ends(own)
    assert progress.part.samples == [4]
    del other
    assert progress.part == Shard([]), "nobody reads any more"
