"""The state of a training at one step, to go back to: weights, buffers, optimizers, schedules and random numbers."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import psutil
import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils._pytree import tree_leaves, tree_map

from autotune import devices
from autotune.knobs.optimizer_impl import parameters_of
from autotune.runtime import random_state
from autotune.runtime.reading import objects

SHARE = 0.25
"""Of the free memory, that a snapshot may take."""


@dataclass(frozen=True)
class Snapshot:
    """State to go back to. What a script keeps in variables of its own (counters, averages) is not in it.

    Attributes:
        tensors: each parameter and buffer, with a copy.
        optimizers: each with what makes copies of its state, and with copies of its groups' options.
        others: schedules and gradient scalers, with their state dicts.
        numbers: of PyTorch, NumPy and Python.
        sources: what writes the state of each other source of random numbers, of a device or of the data's order.
    """

    tensors: list[tuple[Tensor, Tensor]]
    optimizers: list[tuple[Optimizer, dict[Any, Any], list[dict[str, Any]]]]
    others: list[tuple[Any, dict[str, Any]]]
    numbers: bytes
    sources: list[tuple[Callable[[Any], Any], Any]]

    @classmethod
    def take(cls, optimizers: Iterable[Optimizer], buffers: Iterable[Tensor], loader: Any) -> Snapshot | None:
        """Copy the state; None if there is too little memory for it."""
        trained = list(optimizers)
        held = [*parameters_of(*trained), *buffers]
        states = filter(torch.is_tensor, tree_leaves([dict(each.state) for each in trained]))
        if sum(tensor.nbytes for tensor in (*held, *states)) > SHARE * psutil.virtual_memory().available:
            return None
        used = {devices.of(tensor.device) for tensor in held}
        cards = [(device.random_states, device.set_random_states) for device in used]
        steppers = [each for each in gc.get_objects() if issubclass(type(each), LRScheduler | GradScaler)]
        return cls(
            [(tensor, tensor.detach().to("cpu", copy=True)) for tensor in held],
            [(each, tree_map(_kept, dict(each.state)), _options(each)) for each in trained],
            [(each, copy.deepcopy(each.state_dict())) for each in steppers],
            random_state.read(),
            [(write, read()) for read, write in (*order_of(loader)[1], *cards)],
        )

    def restore(self) -> None:
        """Go back. All objects stay the same; gradients are gone."""
        with torch.no_grad():
            for tensor, before in self.tensors:
                tensor.copy_(before)
                tensor.grad = None
        for optimizer, state, options in self.optimizers:
            optimizer.state.clear()
            optimizer.state.update({of: tree_map(lambda make: make(), values) for of, values in state.items()})
            for group, values in zip(optimizer.param_groups, options, strict=False):
                group.update(copy.deepcopy(values))
        for stepper, values in self.others:
            stepper.load_state_dict(copy.deepcopy(values))
        random_state.write(self.numbers)
        for write, source in self.sources:
            write(source)


def order_of(loader: Any) -> tuple[list[Any], list[tuple[Callable[[], Any], Callable[[Any], Any]]]]:
    """Return what decides about the order of the data, and what reads and writes each random source in it."""
    parts = [getattr(loader, name, None) for name in ("batch_sampler", "sampler", "generator")]
    return parts, list(filter(None, map(random_state.of, objects(parts))))


def _kept(value: Any) -> Callable[[], Any]:
    """Return what makes a copy of ``value`` as it is now. A tensor is kept on the CPU: its device may be full."""
    if isinstance(value, Tensor):
        return partial(value.detach().to("cpu", copy=True).to, value.device, copy=True)
    return partial(copy.deepcopy, copy.deepcopy(value))


def _options(optimizer: Optimizer) -> list[dict[str, Any]]:
    groups = ({name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups)
    return copy.deepcopy(list(groups))
