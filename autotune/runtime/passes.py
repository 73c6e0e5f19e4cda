"""The loader that `prepare` hands back, and its passes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader, Sampler

from autotune.runtime.dealing import Part, deal
from autotune.runtime.loader import Mover
from autotune.runtime.order import Order, begun, draw_base_seed
from autotune.runtime.progress import Progress
from autotune.runtime.relay import Relay


class NextBatches(Sampler[Any]):
    """A batch sampler that yields the batches of the pass that begins now: `PreparedLoader` puts them here before."""

    def __init__(self, length: Callable[[], int]) -> None:
        self.batches: Iterator[Any] = iter(())
        self._length = length

    def __iter__(self) -> Iterator[Any]:
        return self.batches

    def __len__(self) -> int:
        return self._length()


@dataclass(frozen=True)
class Sharing:
    """How several processes train on one loader.

    Attributes:
        relay: brings rank 0's items to all ranks.
        world, rank: the processes, and this one.
        full: samples of a full batch; None where batches have no fixed size.
        equal: see `deal`.
        deals: asked when a pass begins: whether batches are dealt out. Else all ranks get them whole.
    """

    relay: Relay
    world: int
    rank: int
    full: int | None
    equal: bool
    deals: Callable[[], bool]


_OWN = frozenset({"own", "loader", "_progress", "_mover", "_order", "_sharing", "_persisting", "_last"})


class PreparedLoader:
    """The user's loader, rebuilt where that helps, with batches on the right device; all else is the user's own.

    Attributes:
        own: the user's loader.
        loader: what is iterated; ``own`` itself where it was left alone.
    """

    def __init__(
        self,
        own: DataLoader[Any],
        loader: DataLoader[Any],
        progress: Progress,
        *,
        mover: Mover | None = None,
        order: Callable[[], Iterable[Any]] | None = None,
        sharing: Sharing | None = None,
    ) -> None:
        self.own, self.loader = own, loader
        self._progress, self._mover, self._order, self._sharing = progress, mover, order, sharing
        self._persisting = False
        self._last: Iterable[Any] | None = None

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        if name == "own":  # not there yet while unpickling
            raise AttributeError(name)
        return getattr(self.own, name)

    @property
    def batch_size(self) -> int | None:
        """Samples of a full batch, of all processes together."""
        order = self._order() if self._order is not None else None
        return order.size if isinstance(order, Order) else self.loader.batch_size or self.own.batch_size

    def __setattr__(self, name: str, value: Any) -> None:
        """What the user changes on his loader changes there, and in the one that is iterated."""
        if name in _OWN:
            object.__setattr__(self, name, value)
            return
        setattr(self.own, name, value)
        if self.loader is not self.own and name in ("collate_fn", "worker_init_fn", "timeout"):
            setattr(self.loader, name, value)

    def set_epoch(self, epoch: int) -> None:
        """Passed on to the user's sampler, where that has epochs."""
        if hasattr(self.own.sampler, "set_epoch"):
            self.own.sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        # A pass without gradients is an evaluation: each process reads all the data, whatever the others do.
        sharing = self._sharing if torch.is_grad_enabled() else None
        if self._order is not None:
            passing: Iterator[Any] = self._indexed(self._order(), sharing)
        else:
            passing = self._plain() if sharing is None else sharing.relay.items(_Lazy(self._plain))
        return _Batches(passing, self._mover, self.loader)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are the user's own loader, as it is without a session."""
        return _itself, (self.own,)

    def _plain(self) -> Iterator[Any]:
        """Whatever the loader yields; a rebuilt one draws its random numbers as the user's does."""
        if self.loader is not self.own:
            self._draw()
        return iter(self.loader)

    def _indexed(self, order: Iterable[Any], sharing: Sharing | None) -> Iterator[Any]:
        repeats = sharing is not None and sharing.relay.repeats
        batches = iter(order) if sharing is None else sharing.relay.items(_Lazy(partial(map, _sequence, order)))
        if repeats:  # what was drawn for the last pass counts
            order = self._repeated(order)
        else:
            self._last = order
            self._draw()
        parts: deque[Part] | None = None
        if sharing is not None and sharing.deals():
            parts = deque()
            batches = _dealt(batches, sharing, parts)
        if self.own.num_workers > 0:  # they ask for the first batches now
            batches = begun(batches)

        def start() -> Iterator[Any]:
            self.loader.batch_sampler.batches = batches  # type: ignore[union-attr]
            return iter(self.loader)

        asked = order.asked if isinstance(order, Order) else None
        passing = _Pass(start, self._progress, parts, asked, at_once=self.own.num_workers > 0)
        if sharing is not None:
            sharing.relay.read_by(passing)
        return passing

    def _repeated(self, order: Iterable[Any]) -> Iterable[Any]:
        """The order of the last pass, which draws what is still to be drawn at its end."""
        if isinstance(self._last, Order):
            self._last.again()
        return order if self._last is None else self._last

    def _draw(self) -> None:
        """The base seed of the workers, the same as plain PyTorch's; workers that persist keep their first one."""
        if self._persisting:
            return
        self._persisting = self.own.persistent_workers
        before = draw_base_seed(self.own)
        assert self.loader.generator is not None
        self.loader.generator.set_state(before)


class _Lazy:
    """An iterable whose iteration begins when it is asked for."""

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self.begin = begin

    def __iter__(self) -> Iterator[Any]:
        return self.begin()


def _dealt(batches: Iterator[Any], sharing: Sharing, parts: deque[Part]) -> Iterator[list[Any]]:
    """This rank's samples of each batch; its part waits in ``parts`` until the loader has read it."""
    for batch in batches:
        part = deal(batch, sharing.world, sharing.rank, sharing.full, equal=sharing.equal)
        parts.append(part)
        yield part.samples


class _Pass(Iterator[Any]):
    """One pass over the rebuilt loader; it starts with the first batch, as a loader without workers does."""

    def __init__(
        self,
        start: Callable[[], Iterator[Any]],
        progress: Progress,
        parts: deque[Part] | None,
        asked: Callable[[], None] | None,
        *,
        at_once: bool,
    ) -> None:
        self._start, self._progress, self._parts, self._asked = start, progress, parts, asked
        self._batches = start() if at_once else None

    def __next__(self) -> Any:
        if self._batches is None:
            self._batches = self._start()
        try:
            batch = next(self._batches)
        except StopIteration:
            self._progress.ends(self)
            raise
        finally:  # a batch that raises has its part, too
            if self._asked is not None:
                self._asked()
            part = self._parts.popleft() if self._parts else None
        if part is not None:
            self._progress.reads(self, part)
        return batch


class _Batches(Iterator[Any]):
    """Batches on the right device, with the length that an iterator of PyTorch's loader has."""

    def __init__(self, batches: Iterator[Any], mover: Mover | None, loader: DataLoader[Any]) -> None:
        self._batches, self._mover, self._loader = batches, mover, loader

    def __next__(self) -> Any:
        batch = next(self._batches)
        return batch if self._mover is None else self._mover(batch)

    def __len__(self) -> int:
        return len(self._loader)


def _sequence(batch: Any) -> Any:
    """A batch of indices that can be cut: a sampler may yield a set."""
    return batch if isinstance(batch, Sequence) else list(batch)


def _itself(own: DataLoader[Any]) -> DataLoader[Any]:
    return own
