from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist

from autotune.runtime.relay import KEPT_STEPS, Relay


class Ranks:
    """Relays of two ranks over one store, with a step count that both share."""

    def __init__(self, ahead: int = 1) -> None:
        self.steps = 0
        self.store = dist.HashStore()
        self.store.set_timeout(timedelta(seconds=2))
        self.relays = [Relay(self.store, "order", rank, lambda: self.steps, ahead) for rank in range(2)]


class Reader:
    """Reads one pass."""

    def __init__(self, relay: Relay, source: Callable[[], Iterable[Any]]) -> None:
        self.items = relay.begin(self, source).items()

    def __iter__(self) -> Iterator[Any]:
        return self.items


def forbidden() -> Iterator[int]:
    raise AssertionError("only rank 0 reads its source")
    yield


@pytest.mark.parametrize("ahead", [1, KEPT_STEPS + 4])
def test_ranks_read_the_same_passes_and_the_store_does_not_grow(ahead: int) -> None:
    ranks = Ranks(ahead)
    outer = [
        Reader(relay, source) for relay, source in zip(ranks.relays, (range(100).__iter__, forbidden), strict=True)
    ]
    for step in range(3 * KEPT_STEPS):
        assert [next(reader.items) for reader in outer] == [step, step]
        assert list(Reader(ranks.relays[0], (step, 7).__iter__)) == [step, 7]
        if step % 2:  # else rank 0 alone has begun the inner pass
            assert list(Reader(ranks.relays[1], forbidden)) == [step, 7]
        ranks.steps += 1
    assert ranks.store.num_keys() <= 4 * KEPT_STEPS + 10


def test_what_rank_zero_cannot_read_is_reported_by_all() -> None:
    ranks = Ranks()

    def broken() -> Iterator[int]:
        yield 1
        raise OSError("gone")

    first, second = Reader(ranks.relays[0], broken), Reader(ranks.relays[1], forbidden)
    assert next(first.items) == next(second.items) == 1
    with pytest.raises(OSError, match="gone"):
        next(first.items)
    with pytest.raises(RuntimeError, match="rank 0 could not read its data: OSError: gone"):
        next(second.items)
