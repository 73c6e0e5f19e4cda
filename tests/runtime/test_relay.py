from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest
import torch.distributed as dist

from autotune.runtime.relay import KEPT_PASSES, Relay


class Ranks:
    """Relays of two ranks over one store, with a step count that both share."""

    def __init__(self, ahead: int = 1) -> None:
        self.steps = 0
        self.store = dist.HashStore()
        self.relays = [Relay(self.store, "order", rank, 2, lambda: self.steps, ahead) for rank in range(2)]


def forbidden() -> Iterator[int]:
    raise AssertionError("only rank 0 reads its source")
    yield


@pytest.mark.parametrize("ahead", [1, 3, 100])
def test_all_ranks_get_rank_zeros_items(ahead: int) -> None:
    ranks = Ranks(ahead)
    for source in ([3, 1, 2, 5], [], [[9]]):
        first, second = ranks.relays[0].items(source), ranks.relays[1].items(forbidden())
        assert list(first) == source
        assert list(second) == source
        ranks.steps += 1


def test_a_look_at_the_loader_by_rank_zero_alone_shifts_nothing() -> None:
    ranks, order = Ranks(), iter(range(100))
    next(ranks.relays[0].items(order))
    passes = [ranks.relays[0].items(order), ranks.relays[1].items(forbidden())]
    pairs = [(next(passes[0]), next(passes[1])) for _ in range(5)]
    assert pairs == [(k, k) for k in range(5)]


def test_a_pass_goes_on_while_another_is_begun() -> None:
    ranks = Ranks()
    outer = [relay.items([1, 2, 3]) for relay in ranks.relays]
    assert [next(items) for items in outer] == [1, 1]
    ranks.steps += 1
    inner = [relay.items([7, 8]) for relay in ranks.relays]
    assert [list(items) for items in inner] == [[7, 8], [7, 8]]
    assert [list(items) for items in outer] == [[2, 3], [2, 3]]


def test_an_error_of_the_source_reaches_all_ranks() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise KeyError("sample")

    ranks = Ranks()
    first, second = ranks.relays[0].items(source()), ranks.relays[1].items(forbidden())
    assert (next(first), next(second)) == (1, 1)
    with pytest.raises(KeyError, match="sample"):
        next(first)
    with pytest.raises(RuntimeError, match="KeyError: 'sample'"):
        next(second)


def test_the_store_does_not_grow() -> None:
    ranks = Ranks()
    for _ in range(3 * KEPT_PASSES):
        for relay in ranks.relays:
            list(relay.items(range(4)))
        ranks.steps += 1
    assert ranks.store.num_keys() == 0
    for _ in range(3 * KEPT_PASSES):  # passes that rank 0 alone has begun
        list(ranks.relays[0].items(range(4)))
        ranks.steps += 1
    assert ranks.store.num_keys() <= KEPT_PASSES * 5


def test_items_may_be_anything_that_pickles() -> None:
    ranks, items = Ranks(), [("path", 3), {"a": [1]}, None]
    assert list(ranks.relays[0].items(items)) == items
    assert list(ranks.relays[1].items(forbidden())) == items
    assert pickle.loads(pickle.dumps(items)) == items
