from __future__ import annotations

from collections.abc import Iterator

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


def test_a_pass_that_is_read_slowly_is_not_forgotten() -> None:
    ranks = Ranks()
    outer = [relay.items(range(40)) for relay in ranks.relays]
    for step in range(3 * KEPT_PASSES):
        assert next(outer[0]) == step
        next(ranks.relays[0].items([7]))
        ranks.steps += 1
    assert [next(outer[1]) for _ in range(3 * KEPT_PASSES)] == list(range(3 * KEPT_PASSES))


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
