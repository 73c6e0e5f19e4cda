"""Prepare models, optimizers, loaders and schedulers for one session."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.utils.data import DataLoader

from autotune.core.settings import Settings
from autotune.runtime import compile as compiling
from autotune.runtime import data_parallel, layout, processes
from autotune.runtime import optimizer as optimizing
from autotune.runtime.feeder import Feeder
from autotune.runtime.loader import PreparedLoader, Progress
from autotune.runtime.notes import Notes
from autotune.runtime.pace import Pace
from autotune.runtime.precision import Precision
from autotune.runtime.prepared import PreparedOptimizer, PreparedScheduler

_PREPARED = (PreparedOptimizer, PreparedScheduler, PreparedLoader)


class Preparer:
    """Knows what a session has prepared, so that preparing twice changes nothing."""

    def __init__(
        self,
        settings: Settings | None,
        level: str | None,
        device: torch.device,
        world: processes.World,
        precision: Precision,
        progress: Progress,
        notes: Notes,
        step_seconds: float | None,
    ) -> None:
        self.settings, self.device, self.world = settings, device, world
        self.precision, self.progress, self.notes = precision, progress, notes
        self.models: list[tuple[nn.Module, nn.Module]] = []
        """Each model as the user has it and as it is trained."""
        self.optimizers: list[PreparedOptimizer] = []
        self.feeder = Feeder(settings, level, device, world, progress, notes, self._drop_held_gradients)
        self._step_seconds = step_seconds
        wanted = settings is not None and settings.data_parallel
        idle = data_parallel.idle(device) if wanted else None
        notes.refuse("data_parallel", idle)
        self._replicates = wanted and idle is None and world.size == 1

    def prepare(self, objects: tuple[Any, ...], find_unused_parameters: bool) -> tuple[Any, ...]:
        """Models first, whatever the order: loaders and optimizers depend on what became of them."""
        models = {
            k: self._model(item, find_unused_parameters)
            for k, item in enumerate(objects)
            if isinstance(item, nn.Module)
        }
        return tuple(models[k] if k in models else self._other(item) for k, item in enumerate(objects))

    def owners(self, parameters: Iterable[Tensor]) -> list[Optimizer]:
        """The user's optimizers that hold any of ``parameters``."""
        ids = {id(parameter) for parameter in parameters}
        return [
            prepared.optimizer
            for prepared in self.optimizers
            if any(id(p) in ids for group in prepared.param_groups for p in group["params"])
        ]

    def refused(self) -> dict[str, str]:
        """Read back: what is not in force on what was prepared."""
        if self.settings is None:
            return {}
        wanted = self.settings.optimizer_impl
        found = [("compile", compiling.refused(model)) for model, _prepared in self.models]
        found += [("optimizer_impl", optimizing.refused(o.optimizer, wanted)) for o in self.optimizers]
        return {knob: reason for knob, reason in found if reason is not None}

    def _model(self, model: nn.Module, find_unused_parameters: bool) -> nn.Module:
        for known, prepared in self.models:
            if model is known or model is prepared:
                return prepared
        model.to(self.device)
        if self.settings is not None:
            self._tune(model, self.settings)
        prepared = model
        if self._replicates:
            prepared = data_parallel.replicate(model, self.precision.autocast)
        elif self.world.size > 1:
            prepared = processes.share_gradients(model, self.device, find_unused_parameters=find_unused_parameters)
        self.models.append((model, prepared))
        return prepared

    def _tune(self, model: nn.Module, settings: Settings) -> None:
        if settings.channels_last:
            refused = layout.apply(model)
            self.notes.refuse("channels_last", refused)
            self.feeder.channels_last |= refused is None
        if not self._replicates:
            self.notes.refuse("precision", data_parallel.loses(model, settings.precision))
            self.precision.wrap(model)
        if settings.compile != "off":
            compiling.apply(model, settings.compile, self.notes.refuse)

    def _other(self, item: Any) -> Any:
        if isinstance(item, _PREPARED):
            return item
        if isinstance(item, DataLoader):
            return self.feeder.prepare(item)
        if isinstance(item, Optimizer):
            return self._optimizer(item)
        if isinstance(item, LRScheduler | ReduceLROnPlateau):
            return PreparedScheduler(item, self.precision, self.progress)
        return item

    def _optimizer(self, optimizer: Optimizer) -> PreparedOptimizer:
        for known in self.optimizers:
            if known.optimizer is optimizer:
                return known
        if self.settings is not None:
            self.notes.refuse("optimizer_impl", optimizing.apply(optimizer, self.settings.optimizer_impl))
        first = not self.optimizers
        prepared = PreparedOptimizer(optimizer, self.precision, self.progress, counts=first)
        if first and self._step_seconds is not None:
            prepared.watch = _until_seen(Pace(self._step_seconds, self.notes.say), prepared)
        self.optimizers.append(prepared)
        return prepared

    def _drop_held_gradients(self) -> None:
        for optimizer in self.optimizers:
            optimizer.drop_held()


def _until_seen(pace: Pace, optimizer: PreparedOptimizer) -> Callable[[], None]:
    """``pace.tick`` that takes itself off ``optimizer`` when done: later steps cost nothing."""

    def tick() -> None:
        if not pace.tick():
            optimizer.watch = None

    return tick
