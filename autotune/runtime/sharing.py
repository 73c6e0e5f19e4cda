"""Loaders that several processes read together, and loaders whose batches are put on a device.

Both stay the user's own objects: their class gets another way to iterate, and gives it back when the session closes.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, Sampler, SequentialSampler

from autotune.knobs.knob import Change
from autotune.runtime.digests import digest
from autotune.runtime.loaders import reads_like, why_not_ahead
from autotune.runtime.notes import Notes
from autotune.runtime.processes import World, agreed, from_rank_zero, store
from autotune.runtime.random_state import OwnNumbers
from autotune.runtime.relay import Relay
from autotune.runtime.shards import Part, Progress, shard

AHEAD = 64
"""Batches of a settled order that rank 0 publishes at once."""
RANK_NAMES = frozenset({"rank", "get_rank", "world_size", "get_world_size", "RANK", "WORLD_SIZE", "process_index"})
"""What code reads that shares its data out among processes itself."""
LONGEST_PASS = 2**24
"""Batches of a pass, for numbers that grow from pass to pass."""
SLOT = "_autotune_batches"
NO_INDICES = "a DataLoader without indices cannot be shared out"
DIFFERENT = "processes hold different datasets"


class Served(Change):
    """A loader that iterates in another way.

    Args:
        loader: the user's.
        batches: makes its passes; gets the loader's own ``__iter__``.
    """

    def __init__(self, loader: DataLoader[Any], batches: Callable[[Callable[[], Any]], Iterator[Any]]) -> None:
        self._loader, self._kind = loader, type(loader)
        vars(loader)[SLOT] = batches
        loader.__class__ = type(self._kind.__name__, (_Serving, self._kind), {"__module__": self._kind.__module__})

    def undo(self) -> None:
        """Let the loader iterate as before."""
        vars(self._loader).pop(SLOT, None)
        if issubclass(type(self._loader), _Serving):
            self._loader.__class__ = self._kind


class _Serving(DataLoader[Any]):
    """The base of a served loader's class."""

    def __iter__(self) -> Any:
        batches: Callable[[Callable[[], Any]], Iterator[Any]] = vars(self)[SLOT]
        return batches(super().__iter__)

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

    def __init__(self, inner: Any, each: Callable[[Any], Any]) -> None:
        self._inner, self._each = inner, each

    def __next__(self) -> Any:
        return self._each(next(self._inner))

    def __len__(self) -> int:
        return len(self._inner)

    def __getattr__(self, name: str) -> Any:
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


def own_share(loader: DataLoader[Any], world: int) -> str | None:
    """Return how the script shares this loader's data out among processes itself; None if it does not."""
    if isinstance(loader.sampler, DistributedSampler):
        return "a DistributedSampler" if loader.sampler.num_replicas == world > 1 else None
    if isinstance(loader.dataset, IterableDataset) and RANK_NAMES & _names(type(loader.dataset)):
        return f"{type(loader.dataset).__name__}, which asks for its rank"
    return None


def _names(kind: type) -> set[str]:
    """Return names and texts in the code of a class's methods."""
    methods = [method for owner in kind.__mro__ for method in vars(owner).values()]
    codes = [code for method in methods if (code := getattr(getattr(method, "fget", method), "__code__", None))]
    found: set[str] = set()
    while codes:
        code = codes.pop()
        found.update(code.co_names, (text for text in code.co_consts if isinstance(text, str)))
        codes += [inner for inner in code.co_consts if hasattr(inner, "co_names")]
    return found


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
        self.numbers = OwnNumbers(world.rank)
        self._first: DataLoader[Any] | None = None

    def share(self, loader: DataLoader[Any], move: Callable[[Any], Any] | None) -> Change:
        """Let all processes read ``loader`` together, if it is one to train on."""
        if self._first is None:  # a loader over a stream has no truth value
            self._first = loader
        own = own_share(loader, self.world.size)
        trained = reads_like(loader, self._first) or not isinstance(loader.sampler, SequentialSampler)
        if own is not None:
            self.notes.add(f"{own} shares the data out itself: its batch is that of one process")
        elif trained:
            return Served(loader, self._shared(loader, move).passes)
        return Served(loader, lambda begin: self._alone(begin, move))

    def _alone(self, begin: Callable[[], Any], move: Callable[[Any], Any] | None) -> Iterator[Any]:
        """Return a pass that each process makes for itself. What it draws is the same everywhere."""
        self.numbers.end()
        return Passing(begin(), move) if move is not None else begin()

    def _shared(self, loader: DataLoader[Any], move: Callable[[Any], Any] | None) -> _Shared:
        """Give all ranks their parts of rank 0's batches; whole ones if the data have no indices or differ."""
        reason = None
        if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
            reason = NO_INDICES
        elif not self._same_everywhere(loader.dataset):
            reason = DIFFERENT
        if reason is not None:
            self.notes.not_applied("processes", f"{reason}: all processes train on the same batches")
            return _Shared(self, loader, self._relay(1, None), None, move)
        ahead = AHEAD if why_not_ahead(loader) is None else 1
        generator = getattr(loader.sampler, "generator", None) or loader.generator
        return _Shared(self, loader, self._relay(ahead, generator), self.trains, move)

    def _relay(self, ahead: int, generator: torch.Generator | None) -> Relay:
        # The same name on all ranks, and of no other loader: from the system, so that no random numbers are drawn.
        tag = torch.tensor(int.from_bytes(os.urandom(7), "big"))
        name = f"autotune/{int(from_rank_zero(tag, self.device).item()):x}"
        return Relay(store(), name, self.world.rank, self.world.size, lambda: self.progress.steps, ahead, generator)

    def _same_everywhere(self, dataset: Any) -> bool:
        """Return whether all processes hold the same data, as far as they can be compared."""
        own = int(digest(dataset)[:14], 16)
        first = int(from_rank_zero(torch.tensor(own), self.device).item())
        return agreed(first == own, self.device)


class _Shared:
    """One loader that several processes read.

    Args:
        sharing: of the session.
        loader: the user's.
        relay: brings rank 0's items to all ranks.
        cuts: asked when a pass begins: whether batches are cut. Else all ranks get all of their samples. None if rank
            0 alone reads them.
        move: puts a batch on the device.
    """

    def __init__(
        self,
        sharing: Sharing,
        loader: DataLoader[Any],
        relay: Relay,
        cuts: Callable[[], bool] | None,
        move: Callable[[Any], Any] | None,
    ) -> None:
        self.sharing, self.loader, self._relay, self._cuts = sharing, loader, relay, cuts
        self.move = move or (lambda batch: batch)
        self._full = loader.batch_size
        self._seeds = torch.Generator()
        self._persisting = False
        self._kept: tuple[dict[str, Any], DataLoader[Any]] | None = None

    def passes(self, begin: Callable[[], Any]) -> Iterator[Any]:
        """Return one pass."""
        self.sharing.numbers.end()
        if not torch.is_grad_enabled():  # an evaluation: each process reads all the data, whatever the others do
            return Passing(begin(), self.move)
        if self._cuts is None:
            return _Pass(self, self._relay.items(_Lazy(begin)), None, self._relay.began_at)
        return self._parts(cut=self._cuts())

    def _parts(self, *, cut: bool) -> Iterator[Any]:
        relay, own = self._relay, self.loader
        repeats = relay.repeats
        batches = relay.items(_Lazy(lambda: map(_sequence, own.batch_sampler)))  # type: ignore[arg-type]
        if not repeats:
            self._draw_base_seed()
        parts: deque[Part] = deque()
        if cut:
            batches = self._cut_up(batches, parts)
        if own.num_workers > 0:  # they ask for the first batches now
            batches = chain(list(islice(batches, 1)), batches)
        inner = self._inner()
        inner.batch_sampler.batches = batches  # type: ignore[union-attr]
        passing = _Pass(self, inner if own.num_workers == 0 else iter(inner), parts, relay.began_at)
        relay.read_by(passing)
        return passing

    def _cut_up(self, batches: Iterator[Any], parts: deque[Part]) -> Iterator[list[Any]]:
        """Yield this rank's samples of each batch; its part waits in ``parts`` until the loader has read it."""
        world, equal = self.sharing.world, self.sharing.device.type == "cpu"
        for batch in batches:
            part = shard(batch, world.size, world.rank, self._full, equal=equal)
            parts.append(part)
            yield part.samples

    def _inner(self) -> DataLoader[Any]:
        """Return a plain loader with the user's present attributes that reads what it is told to."""
        own = {
            name: value for name, value in vars(self.loader).items() if name not in (SLOT, "_iterator", "_get_iterator")
        }
        if self.loader.persistent_workers and self._kept is not None and self._kept[0] == own:
            return self._kept[1]
        inner: DataLoader[Any] = object.__new__(DataLoader)
        batches = _NextBatches(partial(len, self.loader.batch_sampler))  # type: ignore[arg-type]
        vars(inner).update(own, batch_sampler=batches, batch_size=None, generator=self._seeds, _iterator=None)
        if "in_order" in own:
            vars(inner)["in_order"] = True  # parts are told by their order
        self._kept = own, inner
        return inner

    def _draw_base_seed(self) -> None:
        """Draw what plain PyTorch draws when a pass begins; workers that persist keep their first one."""
        if self._persisting:
            return
        self._persisting = self.loader.persistent_workers
        source = self.loader.generator or torch.default_generator
        self._seeds.set_state(source.get_state())
        torch.empty((), dtype=torch.int64).random_(generator=self.loader.generator)


class _Pass(Iterator[Any]):
    """One pass over a shared loader; it starts with the first batch, as a loader without workers does.

    Args:
        shared: the loader.
        batches: of this process.
        parts: of the batches that are being read.
        began_at: optimizer steps before the pass. With the number of a batch it is the same in all processes.
    """

    def __init__(self, shared: _Shared, batches: Iterable[Any], parts: deque[Part] | None, began_at: int) -> None:
        self._shared, self._batches, self._parts = shared, batches, parts
        self._number = began_at * LONGEST_PASS

    def __next__(self) -> Any:
        sharing = self._shared.sharing
        sharing.numbers.end()
        self._number += 1
        sharing.progress.batch = self._number
        if not isinstance(self._batches, Iterator):
            self._batches = iter(self._batches)
        try:
            batch = next(self._batches)
        except StopIteration:
            sharing.progress.ends(self)
            raise
        finally:  # a batch that raises has its part, too
            part = self._parts.popleft() if self._parts else None
        if part is not None:
            sharing.progress.reads(self, part)
            sharing.numbers.begin()
        return self._shared.move(batch)

    def __len__(self) -> int:
        return len(self._shared.loader)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._batches, name)

    def __del__(self) -> None:
        self._shared.sharing.numbers.end()


class _NextBatches(Sampler[Any]):
    """A batch sampler that yields the batches of the pass that begins now."""

    def __init__(self, length: Callable[[], int]) -> None:
        self.batches: Iterator[Any] = iter(())
        self._length = length

    def __iter__(self) -> Iterator[Any]:
        return self.batches

    def __len__(self) -> int:
        return self._length()


class _Lazy:
    """An iterable whose iteration begins when it is asked for."""

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self.begin = begin

    def __iter__(self) -> Iterator[Any]:
        return self.begin()


def _sequence(batch: Any) -> Any:
    """Return a batch of indices that can be cut: a sampler may yield a set."""
    return batch if isinstance(batch, Sequence) else list(batch)
