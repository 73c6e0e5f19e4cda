"""One sequence for all processes: rank 0 produces its items, the others receive them through the group's store.

Batches of sample indices are sent this way. So any sampler of the user's decides the order on rank 0, exactly as in
one process, and random numbers that it draws there are drawn everywhere. No collective is involved: rank 0 may read its
loader alone.

The name of a pass is the number of optimizer steps before it, which is the same on all ranks. A rank may begin another
pass without a step between them. If the first one is still being read (``zip(loader, loader)``), the new one runs
beside it; else it repeats the first one (to read the first batch again).
"""

from __future__ import annotations

import pickle
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch

from autotune.runtime import random_state

KEPT_STEPS = 16
"""Optimizer steps after which rank 0 deletes what it has read itself: all ranks take the same steps."""


@dataclass(eq=False)
class Relay:
    """Passes over one source, the same on every rank.

    Attributes:
        store: a `torch.distributed.Store`, reached by all ranks.
        name: the same on all ranks, and of no other relay.
        rank: this process.
        steps: returns the number of optimizer steps so far.
        ahead: items that rank 0 draws from its source and publishes at once. 1 draws nothing before it is needed.
        generator: of the source, beside the common random numbers.
    """

    store: Any
    name: str
    rank: int
    steps: Callable[[], int]
    ahead: int = 1
    generator: torch.Generator | None = None
    _begun: list[Pass] = field(default_factory=list)
    """Since the last optimizer step."""
    _read: deque[tuple[int, str]] = field(default_factory=deque)

    def begin(self, reader: object, source: Callable[[], Iterable[Any]]) -> Pass:
        """Return the pass that ``reader`` begins now, and reads as long as it is alive.

        Rank 0 alone begins the items of ``source``, when the first one is read.
        """
        steps = self.steps()
        if self._begun and self._begun[0].steps != steps:
            self._begun = []
        idle = next((each for each in self._begun if each.reader() is None), None)
        if idle is None:
            idle = Pass(self, steps, f"{self.name}/{steps}/{len(self._begun)}", source)
            self._begun.append(idle)
        else:
            idle.repeated = True
        idle.reader = weakref.ref(reader)
        return idle

    def publish(self, key: str, content: Any) -> None:
        """Leave ``content`` for the other ranks, and delete what they have read long ago."""
        while self._read and self._read[0][0] < self.steps() - KEPT_STEPS:
            self.store.delete_key(self._read.popleft()[1])
        self.store.set(key, pickle.dumps(content, protocol=pickle.HIGHEST_PROTOCOL))

    def was_read(self, key: str) -> None:
        """Note that rank 0 no longer needs what it has published as ``key``."""
        self._read.append((self.steps(), key))


class Pass:
    """Items of one pass, in chunks. Those that a repeated pass may want are kept until the next optimizer step.

    Attributes:
        steps: optimizer steps before it.
        reader: returns who reads it; None once nobody does.
        repeated: True if nobody reads the first time any more.
    """

    reader: Callable[[], object]

    def __init__(self, relay: Relay, steps: int, name: str, source: Callable[[], Iterable[Any]]) -> None:
        self.steps, self.repeated = steps, False
        self._relay, self._name, self._source = relay, name, source
        self._items: Iterator[Any] | None = None
        self._kept: dict[int, list[Any]] = {}
        self._ready: dict[int, list[Any]] = {}

    def items(self) -> Iterator[Any]:
        """Yield all of them, from the first one on."""
        number = 0
        while chunk := self._chunk(number):
            yield from chunk
            number += 1

    def _chunk(self, number: int) -> list[Any]:
        """Read chunk ``number``; an empty one ends the pass."""
        if number in self._kept:
            return self._kept[number]
        chunk = self._next(number) if self._relay.rank == 0 else self._receive(number)
        if self._relay.steps() == self.steps:
            self._kept[number] = chunk
        else:
            self._kept.clear()
        return chunk

    def _next(self, number: int) -> list[Any]:
        """Read chunk ``number``. Of a settled order publish the next one, too: a rank that is ahead may wait for it."""
        chunk = self._ready.pop(number) if number in self._ready else self._produce(number)
        self._relay.was_read(self._key(number))
        if chunk and self._relay.ahead > 1:
            self._ready[number + 1] = self._produce(number + 1)
        return chunk

    def _produce(self, number: int) -> list[Any]:
        """Publish items or, as text, an error; and the random numbers' state, if any were drawn or the pass begins."""
        relay, key = self._relay, self._key(number)
        before = random_state.read(relay.generator)
        try:
            if self._items is None:
                self._items = iter(self._source())
            chunk = list(islice(self._items, relay.ahead))
        except BaseException as error:
            relay.publish(key, (f"{type(error).__name__}: {error}", None))
            relay.was_read(key)
            raise
        after = random_state.read(relay.generator)
        relay.publish(key, (chunk, after if number == 0 or after != before else None))
        return chunk

    def _receive(self, number: int) -> list[Any]:
        content, drawn = pickle.loads(self._relay.store.get(self._key(number)))
        if isinstance(content, str):
            raise RuntimeError(f"rank 0 could not read its data: {content}")
        if drawn is not None:
            random_state.write(drawn, self._relay.generator)
        return list(content)

    def _key(self, number: int) -> str:
        return f"{self._name}/{number}"

    def __del__(self) -> None:
        for number in self._ready:
            self._relay.was_read(self._key(number))
