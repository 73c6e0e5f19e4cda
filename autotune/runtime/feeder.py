"""Prepare the user's loaders: rebuild what can be rebuilt."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader, IterDataPipe, SequentialSampler

from autotune.runtime import loader as loading
from autotune.runtime.applier import Training
from autotune.runtime.datasets import fingerprint
from autotune.runtime.dealing import batch_to_train_with, said_of
from autotune.runtime.open_files import raise_limit
from autotune.runtime.order import count_of, order_of, settled
from autotune.runtime.passes import NextBatches, PreparedLoader
from autotune.runtime.sharing import Sharer

AHEAD = 64
"""Batches of a settled order that rank 0 publishes at once."""


class Feeder:
    """Makes `PreparedLoader`s for one session.

    The first loader, and what is built like it, is the one trained on; several processes share it and every later one
    that does not read in fixed order. The rest are for evaluation: every process reads all of them.

    Args:
        training: what all parts of the session share.
        trains: whether any prepared model is in training mode.
    """

    def __init__(self, training: Training, trains: Callable[[], bool]) -> None:
        self.training, self.trains = training, trains
        self.settings, self.device, self.world = training.settings, training.device, training.world
        self.progress, self.notes = training.progress, training.notes
        self._undo: list[Callable[[], None]] = []
        self._sharer = Sharer(training)
        self._trained: DataLoader[Any] | None = None

    def prepare(self, loader: DataLoader[Any]) -> PreparedLoader:
        """``loader``, rebuilt where that is possible without guessing."""
        first = self._is_trained_on(loader)
        batch = self._batch(loader) if first else loader.batch_size
        shares = self.world.size > 1 and (first or not isinstance(loader.sampler, SequentialSampler))
        reason = self._left_alone(loader, batch)
        if reason is not None:
            return self._untouched(loader, reason, shares)
        if loading.is_stream(loader):
            return self._stream(loader, batch, shares)
        return self._indexed(loader, batch, shares)

    def _is_trained_on(self, loader: DataLoader[Any]) -> bool:
        """Whether it is the first one, or built like it: a loop may build its loader anew for each epoch."""
        if self._trained is None:  # a loader over a stream has no truth value
            self._trained = loader
        return loading.reads_like(loader, self._trained) and loader.batch_size == self._trained.batch_size

    def close(self) -> None:
        """Put the limit of open files back."""
        while self._undo:
            self._undo.pop()()

    def _batch(self, loader: DataLoader[Any]) -> int | None:
        """The global batch of the loader that is trained on; None where it makes its own batches."""
        if loader.batch_size is None:
            if self.settings is not None and self.training.level == "max":
                self.notes.not_applied("batch_size", "the loader makes batches of its own")
            return None
        ranks = self.world.size if loading.own_share(loader, self.world.size) else 1
        own = loader.batch_size * ranks
        samples = loading.samples_of_epoch(loader)
        level, drops = self.training.level, loader.drop_last
        batch = own if ranks > 1 else batch_to_train_with(own, self.settings, level, samples, drop_last=drops)
        said = said_of(batch, own, self.settings)
        if said is not None:
            self.progress.measured_batch = False
            self.notes.say(said)
        return batch // ranks

    def _left_alone(self, loader: DataLoader[Any], batch: int | None) -> str | None:
        reason = loading.untouchable(loader)
        if reason is None and isinstance(loader.dataset, IterDataPipe):
            reason = "data pipes draw random numbers of their own"
        if reason is None and not loading.is_stream(loader) and self._sharer.reads_alone(loader):
            reason = settled(loader)
        if reason is None and self.settings is None and self._sharer.reads_alone(loader):
            return ""
        if reason is not None and batch != loader.batch_size:
            self.notes.not_applied("batch_size", f"a DataLoader was left as it is: {reason}")
        return reason

    def _untouched(self, loader: DataLoader[Any], reason: str, shares: bool) -> PreparedLoader:
        if self.settings is not None and reason and self.settings.num_workers != loader.num_workers:
            self.notes.not_applied("num_workers", f"a DataLoader was left as it is: {reason}")
        sharing = self._sharer.whole(loader, reason) if shares else None
        return PreparedLoader(loader, loader, self.progress, mover=self._mover(loader), sharing=sharing)

    def _stream(self, loader: DataLoader[Any], batch: int | None, shares: bool) -> PreparedLoader:
        arguments = self._arguments(loader) | {"batch_size": batch}
        if batch is not None:
            arguments["drop_last"] = loader.drop_last
        rebuilt = DataLoader(**arguments, generator=torch.Generator())
        sharing = self._sharer.whole(loader) if shares else None
        return PreparedLoader(loader, rebuilt, self.progress, mover=self._mover(rebuilt), sharing=sharing)

    def _indexed(self, loader: DataLoader[Any], batch: int | None, shares: bool) -> PreparedLoader:
        """A loader over indices: its order is the user's, read ahead as far as that changes nothing."""
        shares = shares and loading.own_share(loader, self.world.size) is None
        if shares and not self._sharer.same_everywhere(fingerprint(loader.dataset)):
            return self._untouched(loader, "processes hold different datasets", shares)
        free = settled(loader) is None
        keeps = not shares and batch == loader.batch_size
        arguments = {} if keeps and self.settings is None else self._arguments(loader, keeps_workers=not free)
        if keeps and _has(loader, arguments):  # then it is read itself, which costs nothing
            return PreparedLoader(loader, loader, self.progress, mover=self._mover(loader))
        replaced = batch if batch != loader.batch_size else None
        order = partial(order_of, loader, replaced)
        sharing = None
        if shares:
            generator = getattr(loader.sampler, "generator", None) or loader.generator
            ahead = AHEAD if free else 1
            sharing = self._sharer.dealt(batch, ahead=ahead, deals=self.trains, generator=generator)
        if sharing is not None:
            arguments.pop("in_order", None)  # parts are told by their order
        batches = NextBatches(partial(count_of, loader, replaced))
        rebuilt = DataLoader(**arguments, batch_sampler=batches, generator=torch.Generator())
        return PreparedLoader(loader, rebuilt, self.progress, mover=self._mover(rebuilt), order=order, sharing=sharing)

    def _arguments(self, loader: DataLoader[Any], *, keeps_workers: bool = False) -> dict[str, Any]:
        wanted = loader.num_workers if self.settings is None or keeps_workers else self.settings.num_workers
        method = "default" if self.settings is None else self.settings.worker_start
        found = loading.workers(loader, wanted, method)
        self.notes.not_applied("num_workers", found.why_not_more)
        if keeps_workers:
            arguments = loading.arguments(loader, self.device, found.count)
        else:
            arguments = self._chosen(loader, found.count)
        if found.count > 0:
            undo = raise_limit()
            self._undo += [undo] if undo else []
            self._for_workers(arguments)
        return arguments

    def _chosen(self, loader: DataLoader[Any], count: int) -> dict[str, Any]:
        """Arguments with ``count`` workers and what the settings ask for."""
        arguments = loading.arguments(loader, self.device, count)
        for applier in self.training.appliers.values():
            applier.loader(loader, arguments)
        return arguments

    def _for_workers(self, arguments: dict[str, Any]) -> None:
        for applier in self.training.appliers.values():
            applier.workers(arguments)

    def _mover(self, loader: DataLoader[Any]) -> loading.Mover | None:
        return loading.mover(self.device, non_blocking=loader.pin_memory) if self.training.moves else None


def _has(loader: DataLoader[Any], arguments: dict[str, Any]) -> bool:
    """Whether ``loader`` was made with ``arguments``."""
    return all(getattr(loader, name, value) in (value,) for name, value in arguments.items())
