"""Settings in force for a running script: what it trains with is prepared as the script comes to it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from autotune.runtime.loader import reads_like
from autotune.script.watch import Begin, Watch, Watcher, trains

if TYPE_CHECKING:
    from autotune.runtime.session import Session

LOG = logging.getLogger("autotune")
BATCHES, STEPS, BACKWARDS = "batches", "steps", "backward passes"
"""What a training step of a script is known by: the first of them that it has."""


class Meter(Protocol):
    """Measures a trial. Every method may end the process.

    Attributes:
        loader: that the script trains on, prepared; set where its first pass begins.
    """

    loader: Any

    def begins(self, session: Session) -> None:
        """The first step begins."""

    def next_batch(self, read: Callable[[], Any]) -> Any:
        """The batch that the script gets; ``read`` gives the loader's next."""

    def takes(self, batch: Any, waited: float) -> None:
        """A batch has come after ``waited`` seconds."""

    def goes_backward(self, loss: Tensor) -> None:
        """A backward pass begins."""

    def ends_step(self, *, interrupted: bool = False) -> None:
        """A training step is over; ``interrupted`` where other work than training was done meanwhile."""


class Tuned(Watcher):
    """Prepares what the script trains with.

    Args:
        watch: tells of it.
        open_session: called once, where training begins.
        known_by: what a training step is known by.
        skip: how many loaders are iterated for something else before training begins.
        meter: measures the steps; None in a real training.

    Attributes:
        session: None before training begins.
    """

    def __init__(
        self,
        watch: Watch,
        open_session: Callable[[], Session],
        *,
        known_by: str = BATCHES,
        skip: int = 0,
        meter: Meter | None = None,
    ) -> None:
        self.watch, self.open_session, self.known_by, self.skip, self.meter = watch, open_session, known_by, skip, meter
        self.session: Session | None = None
        self._loaders: dict[int, tuple[DataLoader[Any], Any]] = {}
        self._optimizers: set[int] = set()
        self._models: set[int] = set()
        self._trained: DataLoader[Any] | None = None
        self._stepping: Optimizer | None = None
        self._passes = 0

    def iterates(self, loader: DataLoader[Any], begin: Begin) -> Iterator[Any]:
        """Batches of the training loader come as the settings want them; every other loader is left alone."""
        if not is_training(self.watch) or self.known_by != BATCHES:
            return begin()
        if self.session is None and self.skip > 0:
            self.skip -= 1
            return begin()
        if not self._is_trained_on(loader):
            return begin()
        prepared = self._safely(lambda: self._prepared(loader))
        if prepared is None:
            return begin()
        again = self._passes > 0
        self._passes += 1
        passing: Iterator[Any] = self.watch.unwatched(prepared.__iter__)
        if self.meter is None:
            return _Passing(self.watch, passing, loader)
        return _Measured(self.watch, passing, prepared, self.meter, again=again)

    def calls(self, model: nn.Module) -> None:
        """A model that is trained gets its layers before its first training step."""
        if self.session is None and (self.known_by == BATCHES or not is_trainable(model)):
            return
        if self.session is None and self.skip > 0:
            self.skip -= 1
            return
        self._safely(lambda: self._prepare_model(model))

    def _prepare_model(self, model: nn.Module) -> None:
        session = self._session()
        self._prepare_optimizers(session)
        free = not self.watch.optimizers and is_trainable(model)
        if id(model) not in self._models and (free or trains(model, self.watch.optimizers)):
            self._models.add(id(model))
            self.watch.unwatched(lambda: session.prepare(model))

    def goes_backward(self, loss: Tensor) -> None:
        """Tells the meter."""
        if self.meter is None or self.session is None:
            return
        if self.known_by == BACKWARDS and loss.numel() == 1:
            self.meter.ends_step()
        self.meter.goes_backward(loss)

    def steps(self, optimizer: Optimizer) -> None:
        """Where there is no training loader, the steps of the first optimizer that makes one count."""
        if self.session is None:
            if self.known_by != STEPS:
                return
            self._prepare_optimizers(self._session())
        if self._models and len(self._models) >= len(self.watch.optimizers):  # all that are trained are known
            self.watch.ignore_calls()
        self._stepping = self._stepping or optimizer
        if self.meter is not None and self.known_by == STEPS and optimizer is self._stepping:
            self.meter.ends_step()

    def _session(self) -> Session:
        if self.session is None:
            self.session = self.watch.unwatched(self.open_session)
            if self.meter is not None:
                self.meter.begins(self.session)
        return self.session

    def _prepare_optimizers(self, session: Session) -> None:
        for optimizer in self.watch.optimizers:
            if id(optimizer) not in self._optimizers:
                self._optimizers.add(id(optimizer))
                session.prepare(optimizer)

    def _is_trained_on(self, loader: DataLoader[Any]) -> bool:
        """The first loader, and those that a script builds in its place for later epochs."""
        if self._trained is None:  # a loader over a stream has no truth value
            self._trained = loader
        return reads_like(loader, self._trained)

    def _safely(self, work: Callable[[], Any]) -> Any:
        """What ``work`` returns. A real training goes on, as it is, where settings cannot be applied."""
        if self.meter is not None:
            return work()
        try:
            return work()
        except Exception as error:
            self.watch.watcher = Watcher()
            self.watch.ignore_calls()
            if self.session is not None:
                self.session.close()
            LOG.warning("autotune: the script runs as it is: %s: %s", type(error).__name__, error)
            return None

    def _prepared(self, loader: DataLoader[Any]) -> Any:
        session = self._session()
        self._check_share(loader, session.world_size)
        self._prepare_optimizers(session)
        if id(loader) not in self._loaders:
            self._loaders[id(loader)] = loader, session.prepare(as_plain(loader))
        return self._loaders[id(loader)][1]

    def _check_share(self, loader: DataLoader[Any], world: int) -> None:
        """Several processes were started by the profile, not by the user: they must not change the global batch.

        Raises:
            SystemExit: in a real training, where they would.
        """
        shared = self.watch.shared_batch
        if self.meter is None and shared is not None and (reason := shared.why_not(loader, world)) is not None:
            raise SystemExit(f"autotune: {reason}")


class _Passing(Iterator[Any]):
    """One pass over the training loader."""

    def __init__(self, watch: Watch, passing: Iterator[Any], loader: DataLoader[Any]) -> None:
        self._watch, self._passing, self._loader = watch, passing, loader

    def __next__(self) -> Any:
        # a pass begins to iterate the rebuilt loader when its first batch is asked for
        return self._watch.unwatched(self._passing.__next__)

    def __len__(self) -> int:
        return len(self._loader)


class _Measured(Iterator[Any]):
    """Passes without end: a trial measures training, and nothing that comes between epochs."""

    def __init__(self, watch: Watch, passing: Iterator[Any], prepared: Any, meter: Meter, *, again: bool) -> None:
        self._watch, self._passing, self._prepared, self._meter = watch, passing, prepared, meter
        self._again, self._taken, self._empty = again, again, True
        meter.loader = prepared

    def __next__(self) -> Any:
        if self._taken:
            self._meter.ends_step(interrupted=self._again)
            self._again = False
        asked = time.perf_counter()
        batch = self._watch.unwatched(lambda: self._meter.next_batch(self._next))
        self._taken, self._empty = True, False
        self._meter.takes(batch, time.perf_counter() - asked)
        return batch

    def _next(self) -> Any:
        try:
            return next(self._passing)
        except StopIteration:
            if self._empty:
                raise
            self._passing, self._empty = iter(self._prepared), True
            return next(self._passing)

    def __len__(self) -> int:
        return len(self._prepared)


def is_training(watch: Watch) -> bool:
    """Whether what the script does now may be training: gradients are recorded, and there is an optimizer."""
    return torch.is_grad_enabled() and bool(watch.optimizers)


def is_trainable(model: nn.Module) -> bool:
    """Whether any parameter of ``model`` is trained."""
    return any(parameter.requires_grad for parameter in model.parameters())


def as_plain(loader: DataLoader[Any]) -> DataLoader[Any]:
    """``loader`` itself; of a subclass, what its ``super().__iter__()`` iterates: a plain loader alike."""
    if type(loader) is DataLoader or type(loader)._get_iterator is not DataLoader._get_iterator:
        return loader
    plain: DataLoader[Any] = object.__new__(DataLoader)
    vars(plain).update(vars(loader))
    return plain
