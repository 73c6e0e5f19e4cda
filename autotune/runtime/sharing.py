"""Loaders that several processes read together, and loaders whose batches are put on a device.

Both stay the user's own objects: their class gets another way to iterate, and gives it back when the session closes.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, Sampler, SequentialSampler

from autotune.knobs.change import Change
from autotune.runtime import random_state
from autotune.runtime.digests import digest
from autotune.runtime.loaders import reads_like, why_not_ahead
from autotune.runtime.notes import Notes
from autotune.runtime.processes import World, agreed, of_rank_zero, store
from autotune.runtime.relay import Pass, Relay
from autotune.runtime.shards import Part, Progress, shard

AHEAD = 64
"""Batches of a settled order that rank 0 publishes at once."""
LONGEST_PASS = 2**24
"""Batches of a pass, for numbers that grow from pass to pass."""
SLOT = "_autotune_passes"
STREAM = "an iterable dataset is left alone: each process reads all that it yields there"

Begin = Callable[[], Any]
"""Begins a pass as the loader does without a session."""


class Served(Change):
    """A loader that iterates in another way.

    Args:
        loader: the user's.
        passes: makes its passes; gets the loader's own ``__iter__``.
        order: what a pass reads, in the place of the loader's batch sampler; that one if None.
    """

    def __init__(
        self, loader: DataLoader[Any], passes: Callable[[Begin], Iterator[Any]], order: Sampler[Any] | None = None
    ) -> None:
        self._loader, self._kind = loader, type(loader)
        vars(loader)[SLOT] = passes, order
        if order is not None:
            loader._iterator = None  # persistent workers would read on in their own order
        loader.__class__ = type(self._kind.__name__, (_Serving, self._kind), {"__module__": self._kind.__module__})

    def undo(self) -> None:
        """Let the loader iterate as before."""
        _passes, order = vars(self._loader).pop(SLOT, (None, None))
        if order is not None:
            self._loader._iterator = None
        if issubclass(type(self._loader), _Serving):
            self._loader.__class__ = self._kind


class _Serving(DataLoader[Any]):
    """The base of a served loader's class."""

    def __iter__(self) -> Any:
        passes, _order = vars(self)[SLOT]
        return passes(super().__iter__)

    @property
    def _index_sampler(self) -> Any:
        _passes, order = vars(self)[SLOT]
        return super()._index_sampler if order is None else order

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        """Reduce to the user's own loader, as it is without a session."""
        state = {name: value for name, value in vars(self).items() if name != SLOT}
        return _plain_copy, (type(self).__mro__[2],), state


def _plain_copy(kind: type[DataLoader[Any]]) -> DataLoader[Any]:
    return object.__new__(kind)


class Passing(Iterator[Any]):
    """An iterator of PyTorch's with something done to each batch; all else is the iterator's own.

    Args:
        inner: PyTorch's.
        each: is done to each batch.
    """

    def __init__(self, inner: Any, each: Callable[[Any], Any] = lambda batch: batch) -> None:
        self._inner, self._each = inner, each

    def __next__(self) -> Any:
        return self._each(next(self._inner))

    def __len__(self) -> int:
        return len(self._inner)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._inner, name)


def mover(device: torch.device, *, non_blocking: bool) -> Callable[[Any], Any] | None:
    """Return a function that puts a batch on ``device``; None if batches are right as they come."""
    return None if device.type == "cpu" else partial(moved, device=device, non_blocking=non_blocking)


def moved(value: Any, *, device: torch.device, non_blocking: bool) -> Any:
    """Return ``value`` with every tensor in it on ``device``: containers keep their class, others move themselves."""
    from torch.utils import _pytree as pytree

    def move(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf.to(device, non_blocking=non_blocking)
        return leaf.to(device) if callable(getattr(leaf, "to", None)) else leaf

    return pytree.tree_map(move, value, is_leaf=lambda part: callable(getattr(part, "to", None)))


def divides_itself(loader: DataLoader[Any], world: int) -> bool:
    """Return whether the sampler shares the data out itself: the batch of ``loader`` is that of one process then."""
    return isinstance(loader.sampler, DistributedSampler) and loader.sampler.num_replicas == world > 1


# Several processes ----------------------------------------------------------------------------------------------------


class Sharing:
    """Connects the loaders of one session to those of the other processes.

    The first loader, and what is built like it, is the one trained on; several processes share it and every later one
    that does not read in fixed order. The rest are for evaluation: every process reads all of them.

    Args:
        world: the processes.
        device: of this process.
        progress: is told of each part.
        notes: for the user.
        trains: returns whether any prepared model is in training mode.
    """

    def __init__(
        self,
        world: World,
        device: torch.device,
        progress: Progress,
        notes: Notes,
        trains: Callable[[], bool],
    ) -> None:
        self.world, self.device, self.progress, self.notes = world, device, progress, notes
        self.trains = trains
        self.numbers = random_state.OwnNumbers(world.rank)
        self._first: DataLoader[Any] | None = None

    def share(self, loader: DataLoader[Any], move: Callable[[Any], Any] | None) -> Served:
        """Let all processes read ``loader`` together, if it is one to train on."""
        if self._first is None:  # a loader over a stream has no truth value
            self._first = loader
        if isinstance(loader.dataset, IterableDataset):
            self.notes.not_applied("processes", STREAM)
        elif divides_itself(loader, self.world.size):
            self.notes.add("a DistributedSampler shares the data out itself: its batch is that of one process")
        elif reads_like(loader, self._first) or not isinstance(loader.sampler, SequentialSampler):
            return self._shared(loader, move)
        return Served(loader, lambda begin: self._alone(begin, move))

    def _alone(self, begin: Begin, move: Callable[[Any], Any] | None) -> Iterator[Any]:
        """Return a pass that each process makes for itself. What it draws is the same everywhere."""
        self.numbers.end()
        return Passing(begin(), move) if move is not None else begin()

    def _shared(self, loader: DataLoader[Any], move: Callable[[Any], Any] | None) -> Served:
        """Give all ranks their parts of rank 0's batches, or all of them if their parts would not fit together."""
        reason = None
        if loader.batch_sampler is None:
            reason = "a DataLoader without batches cannot be shared out"
        elif not getattr(loader, "in_order", True):
            reason = "a DataLoader that yields its batches in any order cannot be shared out"
        elif not self._same_everywhere(loader.dataset):
            reason = "processes hold different datasets"
        if reason is not None:
            self.notes.not_applied("processes", f"{reason}: all processes train on the same batches")
            return Served(loader, _Shared(self, loader, self._relay(1, None), move).whole_passes)
        ahead = AHEAD if why_not_ahead(loader) is None else 1
        generator = getattr(loader.sampler, "generator", None) or loader.generator
        shared = _Shared(self, loader, self._relay(ahead, generator), move)
        return Served(loader, shared.passes, shared)

    def _relay(self, ahead: int, generator: torch.Generator | None) -> Relay:
        # The same name on all ranks, and of no other loader: from the system, so that no random numbers are drawn.
        name = f"autotune/{of_rank_zero(os.urandom(7).hex(), self.device)}"
        return Relay(store(), name, self.world.rank, lambda: self.progress.steps, ahead, generator)

    def _same_everywhere(self, dataset: Any) -> bool:
        """Return whether all processes hold the same data, as far as they can be compared."""
        own = digest(dataset)
        return agreed(of_rank_zero(own, self.device) == own, self.device)


class _Shared(Sampler[Any]):
    """The order of one loader that several processes read: rank 0's, in the place of the batch sampler.

    Args:
        sharing: of the session.
        loader: the user's.
        relay: brings rank 0's items to all ranks.
        move: puts a batch on the device.
    """

    def __init__(
        self, sharing: Sharing, loader: DataLoader[Any], relay: Relay, move: Callable[[Any], Any] | None
    ) -> None:
        self._sharing, self._loader, self._relay = sharing, loader, relay
        self._move = move or (lambda batch: batch)
        self._full = loader.batch_size
        self._begin_order: Callable[[], Iterator[Any]] = self._own_order

    def __iter__(self) -> Iterator[Any]:
        return self._begin_order()

    def __len__(self) -> int:
        return len(self._loader.batch_sampler)  # type: ignore[arg-type]

    def _own_order(self) -> Iterator[Any]:
        return map(list, self._loader.batch_sampler)  # type: ignore[arg-type]

    def passes(self, begin: Begin) -> Iterator[Any]:
        """Return a pass over this process's parts of rank 0's batches; over all of each batch in an evaluation."""
        self._sharing.numbers.end()
        if not torch.is_grad_enabled():  # each process reads all the data, whatever the others do
            self._begin_order = self._own_order
            return Passing(begin(), self._move)
        passing = _Pass(self._sharing, self._move)
        relayed = self._relay.begin(passing, self._own_order)
        parts = passing.parts if self._sharing.trains() else None
        drawn = random_state.read(self._relay.generator) if relayed.repeated else None
        self._begin_order = partial(self._rank_zeros, relayed, parts, drawn)
        return passing.over(begin(), relayed)

    def whole_passes(self, begin: Begin) -> Iterator[Any]:
        """Return a pass over the batches that rank 0 alone reads."""
        self._sharing.numbers.end()
        if not torch.is_grad_enabled():
            return Passing(begin(), self._move)
        passing = _Pass(self._sharing, self._move)
        relayed = self._relay.begin(passing, begin)
        return passing.over(relayed.items(), relayed)

    def _rank_zeros(self, relayed: Pass, parts: deque[Part] | None, drawn: bytes | None) -> Iterator[list[Any]]:
        """Yield rank 0's batches; if ``parts`` are asked for, this process's parts, which wait there to be read."""
        if drawn is not None:  # PyTorch has drawn a seed since, and did so when the pass was begun for the first time
            random_state.write(drawn, self._relay.generator)
        world, equal = self._sharing.world, self._sharing.device.type == "cpu"
        for batch in relayed.items():
            part = Part(batch)
            if parts is not None:
                part = shard(batch, world.size, world.rank, self._full, equal=equal)
                parts.append(part)
            yield part.samples


class _Pass(Passing):
    """One pass over a shared loader.

    Attributes:
        parts: of the batches that are being read; empty if batches are not cut.
    """

    def __init__(self, sharing: Sharing, move: Callable[[Any], Any]) -> None:
        super().__init__(iter(()), move)
        self.parts: deque[Part] = deque()
        self._sharing, self._number = sharing, 0

    def over(self, inner: Any, relayed: Pass) -> _Pass:
        """Read ``inner``. The number of a batch is the same in all processes."""
        self._inner, self._number = inner, relayed.steps * LONGEST_PASS
        return self

    def __next__(self) -> Any:
        progress, numbers = self._sharing.progress, self._sharing.numbers
        numbers.end()
        self._number += 1
        progress.batch = self._number
        try:
            batch = next(self._inner)
        except StopIteration:
            progress.ends(self)
            raise
        finally:  # a batch that raises has its part, too
            part = self.parts.popleft() if self.parts else None
        if part is not None:
            progress.reads(self, part)
            numbers.begin()
        return self._each(batch)

    def __del__(self) -> None:
        self._sharing.numbers.end()
