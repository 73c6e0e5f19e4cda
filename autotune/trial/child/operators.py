"""What the operators of a training step do: calls, operations and bytes of each, and how long they take."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.autograd.profiler import profile  # torch.profiler imports sympy when it starts, for two seconds
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from autotune.knobs.optimizer_impl import parameters_of
from autotune.trial.child.measured_loop import MeasuredLoop, Steps

MOST_EVENTS = 5_000
"""Operator calls that are profiled: reading the profile takes about 50 microseconds for each."""
MOST_STEPS, PROFILE_SECONDS = 10, 0.5
SLOWEST = 3
OURS = ("ProfilerStep", "autograd::engine", "enumerate(", "Optimizer.", "DataLoader", "[memory]", "cuda", "Activity")
"""Names in a profile that are no operators."""
CHAIN = 300


@dataclass
class Counted:
    """One operator in one step: how often it is called, operations and bytes read and written by all calls."""

    calls: int = 0
    flops: float = 0.0
    bytes: float = 0.0


class OperatorCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operators that run while it is entered.

    Attributes:
        found: by name.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: dict[str, Counted] = {}
        self._paused = False

    def pause(self, *_: Any) -> None:
        """Count no more for now."""
        self._paused = True

    def go_on(self, *_: Any) -> None:
        """Count again."""
        self._paused = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator, and count it."""
        options = kwargs or {}
        out = func(*args, **options)
        if self._paused:
            return out
        counted = self.found.setdefault(func._schema.name, Counted())
        counted.calls += 1
        if not _is_view(func):
            counted.bytes += sum(_size(leaf) for leaf in tree_leaves((args, options, out)))
        count = flop_registry.get(func._overloadpacket)
        if count is not None:
            counted.flops += count(*args, **options, out_val=out)
        return out


def _is_view(func: Any) -> bool:
    aliases = [result.alias_info for result in func._schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)


def _size(leaf: Any) -> int:
    """Bytes of a tensor; of an expanded one, those that are there."""
    if not isinstance(leaf, Tensor) or leaf.layout is not torch.strided:
        return 0
    return min(leaf.numel() * leaf.element_size(), leaf.untyped_storage().nbytes())


class SavedTensors(saved_tensors_hooks):
    """Adds up the tensors that a forward pass keeps for the backward pass: its activations.

    Attributes:
        bytes: of different tensors, without those that were there before.

    Args:
        before: such as parameters.
    """

    def __init__(self, before: Iterable[Tensor]) -> None:
        self.bytes = 0
        self._seen = {tensor.untyped_storage().data_ptr() for tensor in before if tensor.layout is torch.strided}
        super().__init__(self._pack, lambda kept: kept)

    def _pack(self, tensor: Tensor) -> Tensor:
        if tensor.layout is torch.strided and tensor.untyped_storage().data_ptr() not in self._seen:
            self._seen.add(tensor.untyped_storage().data_ptr())
            self.bytes += tensor.untyped_storage().nbytes()
        return tensor


def counting(loop: MeasuredLoop) -> Steps[dict[str, Any]]:
    """One step with its operators counted, without those of the update."""
    optimizers = loop.session.optimizers
    counter, saved = OperatorCounter(), SavedTensors(parameters_of(*optimizers))
    hooks = []
    for optimizer in optimizers:
        hooks.append(optimizer.register_step_pre_hook(counter.pause))
        hooks.append(optimizer.register_step_post_hook(counter.go_on))
    with saved, counter:
        yield from loop.timed(1)
    for hook in hooks:
        hook.remove()
    return {"operators": {name: asdict(each) for name, each in counter.found.items()}, "activations": saved.bytes}


def profiling(loop: MeasuredLoop, pace: float, calls: int) -> Steps[dict[str, Any]]:
    """Steps under PyTorch's profiler.

    Args:
        loop: warm.
        pace: seconds of a step.
        calls: operators of a step.
    """
    fitting = min(PROFILE_SECONDS / max(pace, 1e-6), MOST_EVENTS / max(1, 2 * calls), MOST_STEPS)
    steps = loop.agree(max(1, int(fitting)))
    device = loop.session.device.type
    with profile(use_device=None if device == "cpu" else device, record_shapes=True) as profiler:
        began = time.thread_time()
        wall = yield from loop.timed(steps)
        running = (time.thread_time() - began) / wall if wall > 0 else 1.0
    scale = min(1.0, running) if device == "cpu" else 1.0
    loop.goes_on()
    rows = list(_rows(profiler.key_averages(group_by_input_shape=True), steps, scale))
    seconds: dict[str, float] = {}
    for row in rows:
        seconds[row["name"]] = seconds.get(row["name"], 0.0) + row["seconds"]
    return {"seconds": seconds, "slowest": sorted(rows, key=lambda row: -row["seconds"])[:SLOWEST]}


def _rows(averages: Any, steps: int, scale: float) -> Iterator[dict[str, Any]]:
    """Operators with their input shapes, calls, and own seconds in one step.

    Args:
        averages: of the profiler.
        steps: that were profiled.
        scale: share of the time that the training thread had a CPU: operators did not run in the rest.
    """
    for event in averages:
        if not event.key.startswith(OURS):
            micros = scale * max(event.self_cpu_time_total, event.self_device_time_total)
            shapes = [list(shape) for shape in event.input_shapes if shape]
            yield {"name": event.key, "shapes": shapes, "calls": event.count / steps, "seconds": micros / 1e6 / steps}


def call_seconds() -> float:
    """What calling an operator costs where it has nothing to compute, forward and backward: the mean of a chain."""
    counter = OperatorCounter()
    with counter:
        _chain()
    calls = sum(each.calls for each in counter.found.values())
    return statistics.median(_seconds_of_chain() for _ in range(9)) / calls


def _seconds_of_chain() -> float:
    started = time.thread_time()
    _chain()
    return time.thread_time() - started


def _chain() -> None:
    value = weight = torch.ones(1, requires_grad=True)
    for _ in range(CHAIN):
        value = value * weight
    torch.autograd.backward(value)
