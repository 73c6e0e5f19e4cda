from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import RandomSampler, SequentialSampler

from autotune.core.settings import Settings
from autotune.runtime.batches import GlobalBatches, Plan, plan, unshareable


def dealt(samples: int, shape: Plan, drop_last: bool = False) -> list[list[tuple[list[int], float, bool]]]:
    """What each rank gets in a pass: indices, weight, boundary."""
    ranks = []
    for rank in range(shape.world):
        own = Plan(shape.batch, shape.accumulation, shape.world, rank)
        batches = GlobalBatches(SequentialSampler(range(samples)), own, drop_last=drop_last)
        steps = list(batches.steps())
        indices = list(batches)
        assert len(indices) == len(steps) == len(batches)
        ranks.append([(index, *step) for index, step in zip(indices, steps, strict=True)])
    return ranks


@given(
    samples=st.integers(1, 200),
    world=st.integers(1, 5),
    batch=st.integers(1, 70),
    accumulation=st.integers(1, 9),
    drop_last=st.booleans(),
)
def test_every_step_is_exactly_the_users_global_batch(
    samples: int, world: int, batch: int, accumulation: int, drop_last: bool
) -> None:
    batch = max(batch, world)
    shape = Plan(batch, min(accumulation, batch // world), world)
    ranks = dealt(samples, shape, drop_last)
    assert len({len(rank) for rank in ranks}) == 1, "a rank would wait for the others"
    assert len({tuple(boundary for _i, _w, boundary in rank) for rank in ranks}) == 1
    seen: list[int] = []
    group: list[int] = []
    weight = 0.0
    for turn in zip(*ranks, strict=True):
        for indices, share, _boundary in turn:
            assert 1 <= len(indices) <= shape.micro
            weight += share
            group += indices if share else []
            if share:
                expected = min(batch, samples - len(seen))
                assert share == pytest.approx(len(indices) * world / expected)
        if turn[0][2]:
            assert sorted(group) == list(range(len(seen), min(samples, len(seen) + batch)))
            assert weight == pytest.approx(world)
            seen += sorted(group)
            group, weight = [], 0.0
    assert group == []
    assert len(seen) == (samples // batch * batch if drop_last else samples)


@pytest.mark.parametrize(
    ("batch", "level", "world", "expected"),
    [
        (64, "safe", 2, Plan(64, 2, 2)),  # as measured
        (128, "safe", 2, Plan(128, 4, 2)),  # larger: more micro-batches, none larger
        (16, "safe", 2, Plan(16, 1, 2)),
        (64, "safe", 1, Plan(64, 4, 1)),
        (50, "safe", 4, Plan(50, 1, 4)),
        (16, "max", 2, Plan(64, 2, 2)),  # the profile's batch
        (1, "safe", 1, Plan(1, 1, 1)),
    ],
)
def test_plan_keeps_the_users_batch_below_max(batch: int, level: str, world: int, expected: Plan) -> None:
    settings = Settings(processes=2, batch_size=16, accumulation=2)
    found, said = plan(batch, settings, level=level, world=world)
    assert found == expected
    assert found.micro <= 16
    assert (said is not None) == (batch != 64 and level != "max")


def test_ranks_agree_on_a_seed_and_epochs_differ() -> None:
    orders = [
        [list(GlobalBatches(RandomSampler(range(12)), Plan(4, 1, 2, rank), seed=5 + epoch)) for epoch in range(2)]
        for rank in range(2)
    ]
    assert sorted(index for batch in orders[0][0] + orders[1][0] for index in batch) == list(range(12))
    assert orders[0][0] != orders[0][1]
    batches = GlobalBatches(RandomSampler(range(12)), Plan(4, 1), seed=5)
    first = list(batches)
    batches.set_epoch(1)
    assert first != list(batches)


def test_a_generator_gives_the_order_of_one_process() -> None:
    whole = list(RandomSampler(range(40), generator=torch.Generator().manual_seed(9)))
    parts = [
        list(GlobalBatches(RandomSampler(range(40), generator=torch.Generator().manual_seed(9)), Plan(8, 1, 2, rank)))
        for rank in range(2)
    ]
    for k in range(5):
        assert set(parts[0][k]) | set(parts[1][k]) == set(whole[8 * k : 8 * k + 8])


def test_custom_samplers_are_refused_with_their_name() -> None:
    class Curriculum(RandomSampler):
        pass

    assert unshareable(RandomSampler(range(3))) is None
    assert "Curriculum" in (unshareable(Curriculum(range(3))) or "")
