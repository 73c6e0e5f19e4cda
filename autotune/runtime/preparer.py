"""Prepare models, optimizers, loaders and schedulers for one session."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from autotune.core.identity import Made, made_for_another
from autotune.runtime import calls
from autotune.runtime.applier import Training
from autotune.runtime.appliers.optimizer import parameters_of
from autotune.runtime.appliers.precision import Precision
from autotune.runtime.exchange import Exchange, normalises
from autotune.runtime.feeder import Feeder
from autotune.runtime.passes import PreparedLoader
from autotune.runtime.structure import prepared

SETTLED_STEPS = 3
"""Optimizer steps after which all models that a script trains have been prepared."""
NOT_LOADERS = (nn.Module, PreparedLoader, Tensor, list, tuple, dict, str)


CONTAINED = (nn.Module, Optimizer, DataLoader)


def refuse_container(item: Any) -> None:
    """Raise `TypeError` where ``item`` is a plain container of what is to be prepared: nothing would happen to it."""
    if type(item) not in (list, tuple, dict):
        return
    inner = list(item.values()) if isinstance(item, dict) else list(item)
    found = next((each for each in inner if isinstance(each, CONTAINED)), None)
    if found is not None:
        kind = type(item).__name__
        unpacked = "*objects.values()" if kind == "dict" else "*objects"
        raise TypeError(
            f"prepare() got a {kind} that holds a {type(found).__name__}: it prepares its arguments, not what is in"
            f" them. Write tuned.prepare({unpacked})"
        )


class Preparer:
    """Knows what a session has prepared, so that preparing twice changes nothing."""

    def __init__(
        self,
        training: Training,
        precision: Precision,
        watchers: Iterable[Callable[[], bool]] = (),
        made: Made | None = None,
    ) -> None:
        self.training, self.precision = training, precision
        self.models: list[nn.Module] = []
        self.optimizers: list[Optimizer] = []
        several = training.world.size > 1
        self.exchange = Exchange(training.device, training.progress, training.notes) if several else None
        self.feeder = Feeder(training, self._trains)
        self._layers = sorted(training.appliers.values(), key=lambda applier: applier.depth)
        self._undo = contextlib.ExitStack()
        self._made, self._steps_to_settle = made, SETTLED_STEPS
        self._watchers = tuple(watchers)

    def prepare(self, objects: tuple[Any, ...], find_unused_parameters: bool) -> tuple[Any, ...]:
        """Models first, whatever the order: loaders and optimizers depend on what became of them."""
        for item in objects:
            refuse_container(item)
        for item in objects:
            if isinstance(item, nn.Module) and not any(item is known for known in self.models):
                self._model(item, find_unused_parameters)
        return tuple(self._other(item) for item in objects)

    def owners(self, parameters: Iterable[Tensor]) -> list[Optimizer]:
        """The optimizers that hold any of ``parameters``."""
        ids = {id(parameter) for parameter in parameters}
        return [each for each in self.optimizers if any(id(p) in ids for p in parameters_of(each))]

    def close(self) -> None:
        """Leave models and optimizers as they were."""
        self.feeder.close()
        self._undo.close()

    def _trains(self) -> bool:
        return not self.models or any(model.training for model in self.models)

    def _model(self, model: nn.Module, find_unused_parameters: bool) -> None:
        self.models.append(model)
        if self.training.moves:
            model.to(self.training.device)
        for knob, applier in self.training.appliers.items():
            self.training.notes.not_applied(knob, applier.convert(model))
        call = self._layered(model)
        if self.exchange is not None:
            call = self.exchange.model(model, call, find_unused_parameters=find_unused_parameters)
            if normalises(model):
                self.training.notes.say("BatchNorm normalises over each process's share of a batch")
        if call is not calls.current(model):
            self._undo.callback(calls.install(model, call))

    def _layered(self, model: nn.Module) -> calls.Call:
        """What calling ``model`` runs in this process."""
        call = calls.current(model)
        for applier in self._layers:
            call = applier.around(model, call)
            if isinstance(call, calls.Layer) and call.outermost:
                break
        return call

    def _other(self, item: Any) -> Any:
        if isinstance(item, DataLoader):
            return self.feeder.prepare(item)
        if isinstance(item, Optimizer):
            self._optimizer(item)
        elif self.training.world.size > 1 and hasattr(item, "__iter__") and not isinstance(item, NOT_LOADERS):
            self.training.notes.not_applied(
                "processes", f"a {type(item).__name__} is not shared out: it is no DataLoader"
            )
        return item

    def _optimizer(self, optimizer: Optimizer) -> None:
        if optimizer in self.optimizers:
            return
        first = not self.optimizers
        self.optimizers.append(optimizer)
        for knob, applier in self.training.appliers.items():
            self.training.notes.not_applied(knob, applier.optimizer(optimizer))
        hook = optimizer.register_step_post_hook(partial(self._stepped, first=first))
        for undo in (hook.remove, self.precision.scale_steps(optimizer)):
            self._undo.callback(undo)
        if self.exchange is not None:
            self._undo.callback(self.exchange.optimizer(optimizer))

    def _stepped(self, *_arguments: Any, first: bool) -> None:
        self.training.progress.steps += 1
        if first and self._made is not None:
            self._compare_with(self._made)
        if first and self._watchers:
            measured = self.training.progress.measured_batch
            self._watchers = tuple(tick for tick in self._watchers if measured and tick())

    def _compare_with(self, made: Made) -> None:
        """After a few steps, say where the profile was ``made`` for something else."""
        self._steps_to_settle -= 1
        if self._steps_to_settle > 0:
            return
        self._made = None
        said = made_for_another(made, prepared(self.models, self.optimizers))
        if said is not None:
            self.training.notes.say(said)
