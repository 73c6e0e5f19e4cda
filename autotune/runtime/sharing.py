"""Loaders that several processes read together, and loaders whose batches are put on a device.

Both stay the user's own objects: their class gets another way to iterate, and gives it back when the session closes.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import distributed_c10d
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, Sampler, SequentialSampler

from autotune.knobs.change import Change
from autotune.runtime import random_state
from autotune.runtime.fingerprints import digest
from autotune.runtime.loaders import reads_like, why_not_ahead
from autotune.runtime.notes import Notes
from autotune.runtime.processes import World, agreed, of_rank_zero
from autotune.runtime.relay import Pass, Relay
from autotune.runtime.served_loaders import ORDER, PASSES, served
from autotune.runtime.shards import Progress, Shard, shard

AHEAD = 64
"""Batches of a settled order that rank 0 publishes at once."""
LONGEST_PASS = 2**24
"""Batches of a pass, for numbers that grow from pass to pass."""
STREAM = "an iterable dataset is left alone: each process reads all that it yields there"

Begin = Callable[[], Any]
"""Begins a pass as the loader does without a session."""
Move = Callable[[Any], Any]
"""Puts a batch on the device."""


class Passing(Iterator[Any]):
    """An iterator of PyTorch's, ``inner``, with ``each`` done to each batch; all else is the iterator's own."""

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


def mover(device: torch.device) -> Move | None:
    """Return a function that puts every tensor in a batch on ``device``; None if batches are right as they come.

    Containers keep their class, others move themselves.
    """
    if device.type == "cpu":
        return None
    from torch.utils import _pytree as pytree

    def moves(part: Any) -> bool:
        return callable(getattr(part, "to", None))

    def move(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf.to(device, non_blocking=device.type == "cuda")  # it waits where memory is not pinned
        return leaf.to(device) if moves(leaf) else leaf

    return lambda batch: pytree.tree_map(move, batch, is_leaf=moves)


def divides_itself(loader: DataLoader[Any], world: int) -> bool:
    """Return True if the sampler shares the data out itself: the batch of ``loader`` is that of one process then."""
    return isinstance(loader.sampler, DistributedSampler) and loader.sampler.num_replicas == world > 1


class Sharing:
    """Serves the loaders of one session, and connects them to those of the other processes.

    The first loader, and what is built like it, is the one trained on; several processes share it and every later one
    that does not read in fixed order. The rest are for evaluation: every process reads all of them.
    """

    def __init__(
        self, world: World, device: torch.device, progress: Progress, notes: Notes, models: Sequence[nn.Module]
    ) -> None:
        self.world, self.device, self.progress, self.notes, self.models = world, device, progress, notes, models
        self.numbers = random_state.OwnNumbers(world.rank)

    def serve(self, loader: DataLoader[Any], first: DataLoader[Any]) -> Change:
        """Put the batches of ``loader`` on the device. All processes read it together if it is one to train on."""
        move = mover(self.device)
        if self.world.size == 1:
            return Change() if move is None else served(loader, **{PASSES: lambda begin: Passing(begin(), move)})
        if isinstance(loader.dataset, IterableDataset):
            self.notes.not_applied("processes", STREAM)
        elif divides_itself(loader, self.world.size):
            self.notes.add("a DistributedSampler shares the data out itself: its batch is that of one process")
        elif reads_like(loader, first) or not isinstance(loader.sampler, SequentialSampler):
            return self._shared(loader, move)
        return served(loader, **{PASSES: lambda begin: self.alone(begin, move)})

    def alone(self, begin: Begin, move: Move | None) -> Iterator[Any]:
        """Return a pass that each process makes for itself. What it draws is the same everywhere."""
        self.numbers.end()
        return begin() if move is None else Passing(begin(), move)

    def _shared(self, loader: DataLoader[Any], move: Move | None) -> Change:
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
            return served(loader, **{PASSES: _Shared(self, loader, self._relay(1, None), move).whole_passes})
        ahead = AHEAD if why_not_ahead(loader) is None else 1
        generator = getattr(loader.sampler, "generator", None) or loader.generator
        shared = _Shared(self, loader, self._relay(ahead, generator), move)
        loader._iterator = None  # persistent workers would read on in their own order, and in this one afterwards
        change = served(loader, **{PASSES: shared.passes, ORDER: shared})

        def undo() -> None:
            loader._iterator = None
            change.undo()

        return Change(undo)

    def _relay(self, ahead: int, generator: torch.Generator | None) -> Relay:
        # The same name on all ranks, and of no other loader: from the system, so that no random numbers are drawn.
        name = f"autotune/{of_rank_zero(os.urandom(7).hex(), self.device)}"
        store = distributed_c10d._get_default_store()
        return Relay(store, name, self.world.rank, lambda: self.progress.steps, ahead, generator)

    def _same_everywhere(self, dataset: Any) -> bool:
        """Return True if all processes hold the same data, as far as they can be compared."""
        own = digest(dataset)
        return agreed(of_rank_zero(own, self.device) == own, self.device)


class _Shared(Sampler[Any]):
    """The order of one loader that several processes read: rank 0's, in the place of the batch sampler."""

    def __init__(self, sharing: Sharing, loader: DataLoader[Any], relay: Relay, move: Move | None) -> None:
        self._sharing, self._loader, self._relay, self._move = sharing, loader, relay, move
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
        if not torch.is_grad_enabled():  # each process reads all the data, whatever the others do
            self._begin_order = self._own_order
            return self._sharing.alone(begin, self._move)
        passing, models = _Pass(self._sharing, self._move), self._sharing.models
        relayed = self._relay.begin(passing, self._own_order)
        trains = not models or any(model.training for model in models)
        drawn = random_state.read(self._relay.generator) if relayed.repeated else None
        self._begin_order = partial(self._rank_zeros, relayed, passing.parts if trains else None, drawn)
        return passing.over(begin())

    def whole_passes(self, begin: Begin) -> Iterator[Any]:
        """Return a pass over the batches that rank 0 alone reads."""
        if not torch.is_grad_enabled():
            return self._sharing.alone(begin, self._move)
        passing = _Pass(self._sharing, self._move)
        return passing.over(self._relay.begin(passing, begin).items())

    def _rank_zeros(self, relayed: Pass, parts: deque[Shard] | None, drawn: bytes | None) -> Iterator[list[Any]]:
        """Yield rank 0's batches; if ``parts`` are asked for, this process's parts, which wait there to be read."""
        if drawn is not None:  # PyTorch has drawn a seed since, and did so when the pass was begun for the first time
            random_state.write(drawn, self._relay.generator)
        world, equal = self._sharing.world, self._sharing.device.type == "cpu"
        for batch in relayed.items():
            part = Shard(batch)
            if parts is not None:
                part = shard(batch, world.size, world.rank, self._full, equal=equal)
                parts.append(part)
            yield part.samples


class _Pass(Passing):
    """One pass over a shared loader."""

    def __init__(self, sharing: Sharing, move: Move | None) -> None:
        super().__init__(iter(()), move or (lambda batch: batch))
        sharing.numbers.end()
        self.parts: deque[Shard] = deque()
        """Of the batches that are being read; empty if batches are not cut."""
        self._sharing, self._number = sharing, sharing.progress.steps * LONGEST_PASS

    def over(self, inner: Any) -> _Pass:
        """Read ``inner``."""
        self._inner = inner
        return self

    def __next__(self) -> Any:
        progress, numbers = self._sharing.progress, self._sharing.numbers
        numbers.end()
        self._number += 1  # the same in all processes
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
