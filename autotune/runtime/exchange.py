"""Several processes train one model: the same parameters at the start, the same gradients in each step.

On CPUs gradients are averaged after the backward pass. That takes about as long there as `DistributedDataParallel`,
whose copies into buckets cost what they hide (decision 013 has the figures). It asks nothing of the model: freezing,
unused parameters, several calls, losses and backward passes all work. On GPUs `DistributedDataParallel` overlaps the
exchange with the backward pass (`autotune.runtime.overlap`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from autotune.runtime import random_state
from autotune.runtime.appliers.optimizer import parameters_of
from autotune.runtime.averaging import Known, average, drifted, from_rank_zero
from autotune.runtime.calls import Call, Layer
from autotune.runtime.notes import Notes
from autotune.runtime.overlap import Overlapped
from autotune.runtime.progress import Progress

OVERLAPS = ("cuda",)
"""Devices on which gradients are exchanged during the backward pass."""
LOOKS = 1024
"""Parameters are compared between processes after 1, 2, 4, ... and then after every so many optimizer steps."""
APART = (
    "the processes began with other parameters than rank 0's, which now count; networks that are not prepared stay"
    " apart: call autotune.load() or torch.manual_seed before building them, or prepare them too"
)
DRIFT = "the processes' parameters had come apart (something differs by process); rank 0's are taken"
STATE = "the model changes its buffers in each step, by each process's share of the batch; rank 0's are taken"
NOTHING = "neither a model nor an optimizer is prepared: the processes train apart; pass them to tuned.prepare too"
HOOKS = "parameters have hooks of their own, which see the gradient of one process's share"


class Exchange:
    """All that one session's processes exchange.

    Attributes:
        models: each prepared model, with the layer around its call.
        optimizers: each prepared optimizer.
        stopped: gradients are not averaged.
    """

    def __init__(self, device: torch.device, progress: Progress, notes: Notes) -> None:
        self.device, self.progress, self.notes = device, progress, notes
        self.models: dict[nn.Module, Call] = {}
        self.optimizers: list[Optimizer] = []
        self._known = Known()
        self._apart: list[nn.Module] = []
        self._fresh: set[Optimizer] = set()
        self._looks = Looks(device, notes)
        self.stopped = False
        self._own_backward = False
        """True once backward passes come through the session."""

    def model(self, model: nn.Module, call: Call, *, find_unused_parameters: bool) -> Call:
        """The layer around ``call`` that ``model`` needs. Takes rank 0's parameters and buffers, frozen ones too."""
        if isinstance(model, DistributedDataParallel):
            return call
        self._share((*model.parameters(), *model.buffers()))
        if any(p._backward_hooks or p._post_accumulate_grad_hooks for p in model.parameters()):
            self.notes.say(HOOKS)
        overlapped = self.device.type in OVERLAPS
        layer: Call = (
            Overlapped(model, call, self.device, find_unused_parameters=find_unused_parameters)
            if overlapped
            else Shared(model, call, self._share)
        )
        self.models[model] = layer
        return layer

    def optimizer(self, optimizer: Optimizer) -> Callable[[], None]:
        """Let ``optimizer`` step on averaged gradients. Returns how to undo it."""
        self.optimizers.append(optimizer)
        self._share(parameters_of(optimizer))
        hooks = [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
        ]

        def undo() -> None:
            for hook in hooks:
                hook.remove()

        return undo

    def before_backward(self) -> None:
        """Gradients are about to change in this process."""
        self._own_backward = True
        self._fresh.clear()

    def after_backward(self) -> None:
        """Average the gradients of everything that is prepared, but for models whose gradients stay apart."""
        if self.stopped:
            return
        trained = self._trained()
        if not trained:
            self.notes.say(NOTHING)
            return
        apart = {id(p) for model in self._apart for p in model.parameters()}
        done = {id(p) for layer in self.models.values() if isinstance(layer, Overlapped) for p in layer.averaged()}
        average([p for p in trained if id(p) not in apart and id(p) not in done], self._statistics())
        if not self._apart:
            self._fresh.update(self.optimizers)
            self._looks.look(trained, self.optimizers)

    def _statistics(self) -> list[Tensor]:
        """Running statistics that the forward passes have changed in each process by its part of the batch."""
        if self.device.type in OVERLAPS:
            return []
        modules = (module for model in self.models if model not in self._apart for module in model.modules())
        norms = (module for module in modules if isinstance(module, _NormBase) and module.training)
        return [b for norm in norms for b in norm.buffers(recurse=False) if b.is_floating_point()]

    @contextlib.contextmanager
    def no_sync(self, models: Iterable[nn.Module]) -> Iterator[None]:
        """Gradients of ``models``, or of all, stay in this process while inside."""
        before = self._apart
        self._apart = [*before, *(list(models) or self.models)]
        with contextlib.ExitStack() as stack:
            for model in self._apart:
                layer = self.models.get(model)
                if isinstance(layer, Overlapped):
                    stack.enter_context(layer.no_sync())
            try:
                yield
            finally:
                self._apart = before

    def mean(self, value: float) -> float:
        """The mean of ``value`` over all processes, each with the weight of its part of the batch."""
        total = torch.tensor(value * self.progress.part.weight, dtype=torch.float64).to(self.device)
        dist.all_reduce(total)
        return float(total) / dist.get_world_size()

    def _trained(self) -> list[Tensor]:
        """Parameters of prepared models and optimizers, once each."""
        own = [p for model in self.models for p in model.parameters()]
        return list({id(p): p for p in (*own, *parameters_of(*self.optimizers))}.values())

    def _share(self, tensors: Iterable[Tensor]) -> None:
        """Take rank 0's values of whatever has not been seen before."""
        new = self._known.new(tensors)
        if new and from_rank_zero(new, self.device):
            self.notes.say(APART)
        self._known.settle(new)

    def _before_step(self, optimizer: Optimizer, arguments: Any, options: Any) -> Any:
        self._share(parameters_of(optimizer))
        closure = options.get("closure") if options else arguments[1] if len(arguments) > 1 else None
        if closure is None:
            self._freshen(optimizer)
            return None
        shared = self._shared_closure(optimizer, closure)
        return (arguments, options | {"closure": shared}) if options else ((arguments[0], shared), options)

    def _shared_closure(self, optimizer: Optimizer, closure: Callable[[], Any]) -> Callable[[], Any]:
        """The closure's loss is that of the global batch: by it the optimizer may decide how often to call it."""

        def shared() -> Any:
            self._fresh.discard(optimizer)
            loss = closure()
            self._freshen(optimizer)
            if loss is None:
                return None
            mean = self.mean(loss.item() if isinstance(loss, Tensor) else loss)
            return torch.as_tensor(mean, dtype=loss.dtype, device=loss.device) if isinstance(loss, Tensor) else mean

        return shared

    def _freshen(self, optimizer: Optimizer) -> None:
        """Average gradients that no backward pass of the session has made: set by hand, or under `no_sync`."""
        if optimizer not in self._fresh and not self.stopped:
            average(parameters_of(optimizer), self._statistics())

    def _after_step(self, optimizer: Optimizer, _arguments: Any, _options: Any) -> None:
        self._fresh.discard(optimizer)
        if optimizer is self.optimizers[0]:
            self._share_state()
            if not self._own_backward:
                self._looks.look(self._trained(), self.optimizers)

    def _share_state(self) -> None:
        """Buffers that the model itself changes follow rank 0's, so that all processes have one model."""
        changed = self._known.changed(b for model in self.models for b in state_of(model))
        if changed:
            self.notes.say(STATE)
            from_rank_zero(changed, self.device)
            self._known.settle(changed)


def stop(exchange: Exchange) -> None:
    """Average no gradients from now on: the processes come apart. To measure what the exchange takes."""
    exchange.stopped = True
    for layer in exchange.models.values():
        if isinstance(layer, Overlapped):
            layer.no_sync().__enter__()


class Looks:
    """Compares parameters between processes now and then, and takes rank 0's where they have come apart."""

    def __init__(self, device: torch.device, notes: Notes) -> None:
        self.device, self.notes = device, notes
        self._count = 0

    def look(self, trained: Sequence[Tensor], optimizers: Sequence[Optimizer]) -> None:
        """Every process calls this after the same steps."""
        self._count += 1
        if self._count % LOOKS and self._count & (self._count - 1):
            return
        if any(p._backward_hooks or p._post_accumulate_grad_hooks for p in trained):
            self.notes.say(HOOKS)
        groups = [group for optimizer in optimizers for group in optimizer.param_groups if "lr" in group]
        if drifted(trained, [group["lr"] for group in groups], self.device):
            self.notes.say(DRIFT)
            from_rank_zero(trained, self.device)
            rates = torch.tensor([float(group["lr"]) for group in groups], dtype=torch.float64, device=self.device)
            dist.broadcast(rates, 0)
            for group, rate in zip(groups, rates.tolist(), strict=True):
                _set_rate(group, rate)


class Shared(Layer):
    """A model's call in which parameters that came later (a layer replaced after `prepare`) start as rank 0's.

    What it draws (dropout masks) differs by process, as it differs by sample in one.
    """

    def __init__(self, model: nn.Module, call: Call, share: Callable[[Iterable[Tensor]], None]) -> None:
        self.model, self.call, self.share = model, call, share
        self._lazy = True
        """False once no layer takes its shape, and draws its parameters, in the first call."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """The model's outputs."""
        if not (torch.is_grad_enabled() and self.model.training):
            return self.call(*arguments, **options)
        self.share(p for p in self.model.parameters() if isinstance(p, nn.Parameter))
        builds = self._lazy = self._lazy and any(map(is_lazy, self.model.parameters()))
        with contextlib.nullcontext() if builds else random_state.apart(dist.get_rank()):
            return self.call(*arguments, **options)


def state_of(model: nn.Module) -> Iterator[Tensor]:
    """Buffers other than running statistics, which are averaged with the gradients."""
    for module in model.modules():
        if not isinstance(module, _NormBase):
            yield from module.buffers(recurse=False)


def _set_rate(group: dict[str, Any], rate: float) -> None:
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def normalises(model: nn.Module) -> bool:
    """True where a layer takes statistics over the samples of a batch."""
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())
