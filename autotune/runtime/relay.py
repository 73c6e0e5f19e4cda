"""One sequence for all processes: rank 0 produces its items, the others receive them through the group's store.

Batches of sample indices travel this way, so that any sampler of the user's decides the order, on rank 0, exactly as
it would in one process; random numbers that it draws there are drawn everywhere. No collective is involved: rank 0 may
look at its loader alone.

A pass is named by the number of optimizer steps before it, which all ranks agree on, not by how often a rank has begun
one. Where a rank begins another pass without a step between them, it goes beside the first one if that is still being
read (``zip(loader, loader)``), and else repeats it (a look at the first batch).
"""

from __future__ import annotations

import pickle
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import torch

from autotune.runtime import random_state

KEPT_PASSES = 8
"""Passes whose items stay in the store for ranks that are late; older ones are deleted."""


class Relay:
    """Passes over one source, the same on every rank.

    Args:
        store: a `torch.distributed.Store`, reached by all ranks.
        name: the same on all ranks, and of no other relay.
        rank: this process.
        world: the number of processes.
        steps: the number of optimizer steps so far.
        ahead: items that rank 0 draws from its source and publishes at once. 1 draws nothing before it is needed.
        generator: of the source, beside the common random numbers.
    """

    def __init__(
        self,
        store: Any,
        name: str,
        rank: int,
        world: int,
        steps: Callable[[], int],
        ahead: int = 1,
        generator: torch.Generator | None = None,
    ) -> None:
        self.store, self.name, self.rank, self.world = store, name, rank, world
        self.steps, self.ahead, self.generator = steps, ahead, generator
        self._begun: list[_Pass] = []
        """Since the last optimizer step."""
        self._latest: _Pass | None = None
        self._published: deque[_Pass] = deque()

    @property
    def repeats(self) -> bool:
        """True where a pass that begins now repeats one that nobody reads any more."""
        return any(not each.read_now for each in self._since_the_step())

    @property
    def began_at(self) -> int:
        """Optimizer steps before the latest pass."""
        return self._latest.steps if self._latest is not None else 0

    def items(self, source: Iterable[Any]) -> Iterator[Any]:
        """Return the items of a pass that begins now. ``source`` is iterated on rank 0 only."""
        begun = self._since_the_step()
        idle = next((each for each in begun if not each.read_now), None)
        if idle is None:
            idle = _Pass(self, self.steps(), len(begun), iter(source) if self.rank == 0 else iter(()))
            begun.append(idle)
            self._publish(idle)
        self._latest = idle
        return idle.items()

    def read_by(self, reader: Any) -> None:
        """The latest pass is being read as long as ``reader`` is alive, which reads it through others."""
        if self._latest is not None:
            self._latest.reader = weakref.ref(reader)

    def _since_the_step(self) -> list[_Pass]:
        steps = self.steps()
        if self._begun and self._begun[0].steps != steps:
            self._begun = []
        return self._begun

    def _publish(self, begun: _Pass) -> None:
        """Keep the last few passes in the store, and all that are still being read."""
        self._published.append(begun)
        old = [each for each in list(self._published)[:-KEPT_PASSES] if not each.read_now]
        for each in old:
            each.forget()
            self._published.remove(each)


class _Pass:
    """Items of one pass, in chunks. Those that a repeated pass may want are kept until the next optimizer step."""

    def __init__(self, relay: Relay, steps: int, beside: int, source: Iterator[Any]) -> None:
        self.relay, self.steps = relay, steps
        self._name = f"{relay.name}/{steps}/{beside}"
        self._source = source
        self._kept: dict[int, list[Any]] = {}
        self._ready: dict[int, list[Any]] = {}
        self._chunks = 0
        self.reader: weakref.ref[Any] | None = None

    @property
    def read_now(self) -> bool:
        """Return whether somebody still holds an iterator over these items."""
        return self.reader is not None and self.reader() is not None

    def items(self) -> Iterator[Any]:
        """All of them, from the first one on."""
        reader = self._items()
        self.reader = weakref.ref(reader)
        return reader

    def _items(self) -> Iterator[Any]:
        number = 0
        while chunk := self._chunk(number):
            yield from chunk
            if 1 < self.relay.ahead > len(chunk):
                return
            number += 1

    def _chunk(self, number: int) -> list[Any]:
        """Read chunk ``number``; an empty one ends the pass."""
        if number in self._kept:
            return self._kept[number]
        chunk = self._next(number) if self.relay.rank == 0 else self._receive(number)
        if self.relay.steps() == self.steps:
            self._kept[number] = chunk
        else:
            self._kept.clear()
        return chunk

    def _next(self, number: int) -> list[Any]:
        """Read chunk ``number``, which a rank that is ahead may wait for: the one after it is published now."""
        chunk = self._ready.pop(number) if number in self._ready else self._produce(number)
        if 1 < self.relay.ahead == len(chunk):
            self._ready[number + 1] = self._produce(number + 1)
        return chunk

    def _produce(self, number: int) -> list[Any]:
        before = random_state.read(self.relay.generator)
        try:
            chunk = list(islice(self._source, self.relay.ahead))
        except BaseException as error:
            self._publish(number, f"{type(error).__name__}: {error}", None)
            raise
        after = random_state.read(self.relay.generator)
        self._publish(number, chunk, after if number == 0 or after != before else None)
        return chunk

    def _publish(self, number: int, content: Any, drawn: bytes | None) -> None:
        """Leave items or, as text, an error; and where random numbers stand, if any were drawn or the pass begins."""
        self._chunks = number + 1
        self.relay.store.set(self._key(number), pickle.dumps((content, drawn), protocol=pickle.HIGHEST_PROTOCOL))

    def _receive(self, number: int) -> list[Any]:
        key = self._key(number)
        content, drawn = pickle.loads(self.relay.store.get(key))
        if self.relay.store.add(f"{key}/read", 1) == self.relay.world - 1:
            self.relay.store.delete_key(key)
            self.relay.store.delete_key(f"{key}/read")
        if isinstance(content, str):
            raise RuntimeError(f"rank 0 could not read its data: {content}")
        if drawn is not None:
            random_state.write(drawn, self.relay.generator)
        return list(content)

    def forget(self) -> None:
        """Take what nobody has read out of the store."""
        for number in range(self._chunks):
            self.relay.store.delete_key(self._key(number))
            self.relay.store.delete_key(f"{self._key(number)}/read")

    def _key(self, number: int) -> str:
        return f"{self._name}/{number}"
