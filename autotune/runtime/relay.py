"""One sequence for all processes: rank 0 produces its items, the others receive them through the group's store.

Batches of sample indices travel this way, so that any sampler of the user's decides the order, on rank 0, exactly as
it would in one process. No collective is involved: rank 0 may look at its loader alone. A pass is named by the number
of optimizer steps before it, which all ranks agree on, not by how often a rank has begun one; where a rank begins two
passes without a step between them, the second repeats the first.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Protocol

KEPT_PASSES = 8
"""Passes whose items stay in the store for ranks that are late; older ones are deleted."""


class Store(Protocol):
    """What is used of `torch.distributed.Store`."""

    def set(self, key: str, value: bytes, /) -> None:
        """Publish."""

    def get(self, key: str, /) -> bytes:
        """Wait for a key and read it."""

    def add(self, key: str, amount: int, /) -> int:
        """Count."""

    def delete_key(self, key: str, /) -> bool:
        """Forget."""


class Relay:
    """Passes over one source, the same on every rank.

    Args:
        store: reached by all ranks.
        name: the same on all ranks, and of no other relay.
        rank: this process.
        world: the number of processes.
        steps: the number of optimizer steps so far.
        ahead: items that rank 0 draws from its source and publishes at once. 1 draws nothing before it is needed.
    """

    def __init__(
        self, store: Store, name: str, rank: int, world: int, steps: Callable[[], int], ahead: int = 1
    ) -> None:
        self.store, self.name, self.rank, self.world = store, name, rank, world
        self.steps, self.ahead = steps, ahead
        self._last: _Pass | None = None
        self._published: deque[_Pass] = deque()

    @property
    def repeats(self) -> bool:
        """True where a pass that begins now repeats the last one."""
        return self._last is not None and self._last.steps == self.steps()

    def items(self, source: Iterable[Any]) -> Iterator[Any]:
        """The items of a pass that begins now. ``source`` is iterated on rank 0 only."""
        steps = self.steps()
        if self._last is None or self._last.steps != steps:
            self._last = _Pass(self, steps, iter(source) if self.rank == 0 else iter(()))
            self._published.append(self._last)
            if len(self._published) > KEPT_PASSES:
                self._published.popleft().forget()
        return self._last.items()


class _Pass:
    """Items of one pass, in chunks. Those that a repeated pass may want are kept until the next optimizer step."""

    def __init__(self, relay: Relay, steps: int, source: Iterator[Any]) -> None:
        self.relay, self.steps = relay, steps
        self._source = source
        self._kept: dict[int, list[Any]] = {}
        self._chunks = 0

    def items(self) -> Iterator[Any]:
        number = 0
        while chunk := self._chunk(number):
            yield from chunk
            number += 1

    def _chunk(self, number: int) -> list[Any]:
        """Chunk ``number``; an empty one ends the pass."""
        if number in self._kept:
            return self._kept[number]
        chunk = self._produce(number) if self.relay.rank == 0 else self._receive(number)
        if self.relay.steps() == self.steps:
            self._kept[number] = chunk
        else:
            self._kept.clear()
        return chunk

    def _produce(self, number: int) -> list[Any]:
        try:
            chunk = list(islice(self._source, self.relay.ahead))
        except BaseException as error:
            self._publish(number, f"{type(error).__name__}: {error}")
            raise
        self._publish(number, chunk)
        return chunk

    def _publish(self, number: int, content: Any) -> None:
        self._chunks = number + 1
        self.relay.store.set(self._key(number), pickle.dumps(content, protocol=pickle.HIGHEST_PROTOCOL))

    def _receive(self, number: int) -> list[Any]:
        key = self._key(number)
        content = pickle.loads(self.relay.store.get(key))
        if self.relay.store.add(f"{key}/read", 1) == self.relay.world - 1:
            self.relay.store.delete_key(key)
            self.relay.store.delete_key(f"{key}/read")
        if isinstance(content, str):
            raise RuntimeError(f"rank 0 could not read its data: {content}")
        return list(content)

    def forget(self) -> None:
        """Take what nobody has read out of the store."""
        for number in range(self._chunks):
            self.relay.store.delete_key(self._key(number))
            self.relay.store.delete_key(f"{self._key(number)}/read")

    def _key(self, number: int) -> str:
        return f"{self.relay.name}/{self.steps}/{number}"
