"""Prepare models, optimizers, loaders and schedulers for one session."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from autotune.core.settings import Settings
from autotune.runtime import calls, data_parallel, layout, processes
from autotune.runtime import compile as compiling
from autotune.runtime.exchange import Exchange, normalises
from autotune.runtime.feeder import Feeder
from autotune.runtime.notes import Notes
from autotune.runtime.optimizer import Implementation, parameters_of
from autotune.runtime.pace import Pace
from autotune.runtime.passes import PreparedLoader
from autotune.runtime.precision import Precision
from autotune.runtime.progress import Progress

NOT_LOADERS = (nn.Module, PreparedLoader, Tensor, list, tuple, dict, str)
FLATTENS = "the optimizer flattens gradients, which needs the usual layout"


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
        self.models: list[nn.Module] = []
        self.exchange = Exchange(device, progress, notes) if world.size > 1 else None
        self.optimizers: dict[Optimizer, Implementation] = {}
        self.finished_steps = 0
        """Of the first optimizer, without those a scaler skipped."""
        self.feeder = Feeder(settings, level, device, world, progress, notes, self._trains)
        self._layers: list[calls.Call] = []
        self._undo = contextlib.ExitStack()
        self._pace = None if step_seconds is None else Pace(step_seconds, notes.say)
        wanted = settings is not None and settings.data_parallel
        idle = data_parallel.idle(device) if wanted else None
        notes.refuse("data_parallel", idle)
        self._replicates = wanted and idle is None and world.size == 1

    def prepare(self, objects: tuple[Any, ...], find_unused_parameters: bool) -> tuple[Any, ...]:
        """Models first, whatever the order: loaders and optimizers depend on what became of them."""
        for item in objects:
            if isinstance(item, nn.Module) and not any(item is known for known in self.models):
                self._model(item, find_unused_parameters)
        return tuple(self._other(item) for item in objects)

    def owners(self, parameters: Iterable[Tensor]) -> list[Optimizer]:
        """The optimizers that hold any of ``parameters``."""
        ids = {id(parameter) for parameter in parameters}
        return [each for each in self.optimizers if any(id(p) in ids for p in parameters_of(each))]

    def refused(self) -> dict[str, str]:
        """Read back: what is not in force on what was prepared."""
        if self.settings is None:
            return {}
        found = [("compile", layer.refused()) for layer in self._layers if isinstance(layer, compiling.Compiled)]
        found += [("optimizer_impl", each.refused or each.left_alone) for each in self.optimizers.values()]
        found += [("precision", self.precision.refused())]
        return {knob: reason for knob, reason in found if reason is not None}

    def close(self) -> None:
        """Leave models and optimizers as they were."""
        self.feeder.close()
        self._undo.close()

    def _trains(self) -> bool:
        return not self.models or any(model.training for model in self.models)

    def _model(self, model: nn.Module, find_unused_parameters: bool) -> None:
        self.models.append(model)
        model.to(self.device)
        call = calls.current(model)
        if self.settings is not None:
            call = self._tuned(model, self.settings)
        if self.exchange is not None:
            call = self.exchange.model(model, call, find_unused_parameters=find_unused_parameters)
            if normalises(model):
                self.notes.say("BatchNorm normalises over each process's share of a batch")
        if call is not calls.current(model):
            self._undo.callback(calls.install(model, call))

    def _tuned(self, model: nn.Module, settings: Settings) -> calls.Call:
        """What calling ``model`` runs in this process."""
        laid_out = settings.channels_last and self._lay_out(model)
        if self._replicates and not isinstance(model, nn.DataParallel):
            return data_parallel.Replicated(model, self.precision.autocast)
        self.notes.refuse("precision", data_parallel.loses(model, settings.precision))
        call = calls.current(model)
        if settings.compile != "off":
            call = compiling.around(model, settings.compile, self.notes.refuse)
            self._layers.append(call)
        if laid_out:
            call = layout.Tried(model, call, self._layout_refused)
        return self.precision.around(model, call)

    def _lay_out(self, model: nn.Module) -> bool:
        """Convert ``model`` to channels_last. False where it was left alone."""
        flattens = any(_flattens(optimizer) for optimizer in self.optimizers)
        reason = FLATTENS if flattens else layout.apply(model)
        self.notes.refuse("channels_last", reason)
        self._place_state()
        return reason is None

    def _layout_refused(self, knob: str, reason: str) -> None:
        self.notes.refuse(knob, reason)
        self._place_state()

    def _place_state(self) -> None:
        for implementation in self.optimizers.values():
            implementation.place_state()

    def _other(self, item: Any) -> Any:
        if isinstance(item, DataLoader):
            return self.feeder.prepare(item)
        if isinstance(item, Optimizer):
            self._optimizer(item)
        elif self.world.size > 1 and hasattr(item, "__iter__") and not isinstance(item, NOT_LOADERS):
            self.notes.refuse("processes", f"a {type(item).__name__} is not shared out: it is no DataLoader")
        return item

    def _optimizer(self, optimizer: Optimizer) -> None:
        if optimizer in self.optimizers:
            return
        if self.settings is not None and self.settings.channels_last and _flattens(optimizer):
            for model in self.models:
                layout.undo(model)
            self.notes.refuse("channels_last", FLATTENS)
        first = not self.optimizers
        implementation = Implementation(optimizer, self.settings.optimizer_impl if self.settings else "default")
        self.notes.refuse("optimizer_impl", implementation.refused)
        self.optimizers[optimizer] = implementation
        hook = optimizer.register_step_post_hook(partial(self._stepped, first=first))
        for undo in (implementation.close, hook.remove, self.precision.scale_steps(optimizer)):
            self._undo.callback(undo)
        if self.exchange is not None:
            self._undo.callback(self.exchange.optimizer(optimizer))

    def _stepped(self, *_arguments: Any, first: bool) -> None:
        self.progress.steps += 1
        if first:
            self.finished_steps += 1
            if self._pace is not None and not (self.progress.measured_batch and self._pace.tick()):
                self._pace = None


def _flattens(optimizer: Optimizer) -> bool:
    return isinstance(optimizer, torch.optim.LBFGS)
