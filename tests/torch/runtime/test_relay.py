from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from autotune.runtime import random_state
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


def test_two_passes_read_together_are_two() -> None:
    ranks, orders = Ranks(), iter(([1, 2, 3], [4, 5, 6]))
    first = [ranks.relays[0].items(next(orders)), ranks.relays[1].items(forbidden())]
    second = [ranks.relays[0].items(next(orders)), ranks.relays[1].items(forbidden())]
    pairs = []
    for _ in range(3):
        pairs.append([(next(a), next(b)) for a, b in zip(first, second, strict=True)])
        ranks.steps += 1
    assert pairs == [[(1, 4)] * 2, [(2, 5)] * 2, [(3, 6)] * 2]


def test_a_pass_that_is_read_slowly_is_not_forgotten() -> None:
    ranks = Ranks()
    outer = [relay.items(range(40)) for relay in ranks.relays]
    for step in range(3 * KEPT_PASSES):
        assert next(outer[0]) == step
        next(ranks.relays[0].items([7]))
        ranks.steps += 1
    assert [next(outer[1]) for _ in range(3 * KEPT_PASSES)] == list(range(3 * KEPT_PASSES))


def test_what_rank_zero_draws_is_drawn_everywhere() -> None:
    ranks, generator = Ranks(), torch.Generator()
    ranks.relays[0].generator = generator
    ranks.relays[1].generator = torch.Generator().manual_seed(9)
    torch.manual_seed(1)
    generator.manual_seed(2)

    def source() -> Iterator[float]:
        yield float(torch.rand(()) + torch.rand((), generator=generator))
        yield random.random()

    state = random_state.read()
    passes = ranks.relays[0].items(source()), ranks.relays[1].items(forbidden())
    next(passes[0])
    drawn = torch.get_rng_state()
    random_state.write(state)  # where rank 1 stands
    next(passes[1])
    assert torch.equal(torch.get_rng_state(), drawn)
    assert torch.equal(ranks.relays[1].generator.get_state(), generator.get_state())


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
