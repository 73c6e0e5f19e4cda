"""Measures each part of a training step by itself, in one trial: see `autotune.diagnosis.inspection`."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils._pytree import tree_map_only

from autotune.knobs.optimizer_impl import parameters_of
from autotune.runtime.gradient_sync import average
from autotune.runtime.sharing import moved
from autotune.trial.child.loaded_task import batch_length
from autotune.trial.child.loader_alone import loader_alone
from autotune.trial.child.measured_loop import MeasuredLoop, Steps, synchronize
from autotune.trial.child.operators import call_seconds, counting, profiling
from autotune.trial.child.task_facts import tensor_bytes

SECONDS = 0.3
MOST_REPEATS = 200
LEAST_PAIRS, MOST_PAIRS = 5, 40


def inspecting(loop: MeasuredLoop, pace: float) -> Steps[dict[str, Any]]:
    """`Inspection` of a warm loop as plain data. All ranks do the same; rank 0's counts.

    Args:
        loop: warm.
        pace: seconds of a step.
    """
    peak = peak_memory(loop)
    kept = _Gradients(loop.session.optimizers)
    found: dict[str, Any] = yield from counting(loop)
    kept.remove()
    calls = sum(each["calls"] for each in found["operators"].values())
    found |= yield from profiling(loop, pace, calls)
    found |= {"step_seconds": pace, "call_seconds": call_seconds(), "peak": peak, **_sizes(loop, kept)}
    found["update_seconds"] = _update_seconds(loop, kept)
    found["exchange_seconds"] = _exchange_seconds(loop, kept)
    found["copy_seconds"] = _copy_seconds(loop)
    found["batches"] = _batch_seconds(loop)
    found["loader"] = loader_alone(loop) if loop.loader is not None else None
    return found


class _Gradients:
    """Keeps the gradients of the last step, which loops forget.

    Attributes:
        found: by parameter, in the order of the optimizers.
    """

    def __init__(self, optimizers: Iterable[Optimizer]) -> None:
        self.found: list[tuple[Tensor, Tensor]] = []
        self._hooks = [optimizer.register_step_pre_hook(self._keep) for optimizer in optimizers]

    def _keep(self, optimizer: Optimizer, *_: Any) -> None:
        own = parameters_of(optimizer)
        self.found += [(p, p.grad.detach().clone()) for p in own if p.grad is not None]

    def remove(self) -> None:
        """Keep no more."""
        for hook in self._hooks:
            hook.remove()

    def put(self) -> None:
        """Give every parameter its gradient again."""
        for parameter, gradient in self.found:
            parameter.grad = gradient.clone()


def _update_seconds(loop: MeasuredLoop, kept: _Gradients) -> float:
    """Of the optimizers' steps alone, without an exchange."""
    kept.put()
    if loop.session.sync is not None:
        loop.session.sync.stop()
    optimizers = loop.session.optimizers

    def update() -> None:
        for optimizer in optimizers:
            type(optimizer).step(optimizer)  # without what scales gradients, which no backward pass has made

    return _repeated(loop, update) if kept.found else 0.0


def _exchange_seconds(loop: MeasuredLoop, kept: _Gradients) -> float | None:
    """Of averaging all gradients; None for a single process."""
    if loop.session.world_size == 1:
        return None
    kept.put()
    return _repeated(loop, lambda: average([parameter for parameter, _ in kept.found]))


def _copy_seconds(loop: MeasuredLoop) -> float | None:
    """Of a batch's way from the host to the device; None where they are one."""
    if loop.session.device.type == "cpu":
        return None
    host = moved(loop.batch, device=torch.device("cpu"), non_blocking=False)
    return _repeated(loop, lambda: moved(host, device=loop.session.device, non_blocking=False))


def _batch_seconds(loop: MeasuredLoop) -> list[tuple[float, float]]:
    """Forward and backward pass of the last batch and of a quarter of it, in turns; none where it cannot be cut."""
    try:
        passes = [partial(loop.forward_backward, batch) for batch in (loop.batch, _quarter(loop.batch))]
        first = [_timed(loop, each, 1) for each in passes]
        count = loop.agree(max(LEAST_PAIRS, min(MOST_PAIRS, int(SECONDS / sum(first)))))
        return [(_timed(loop, passes[0], 1), _timed(loop, passes[1], 1)) for _ in range(count)]
    except Exception:
        return []


def _quarter(batch: Any) -> Any:
    """The first quarter of the samples of ``batch``.

    Raises:
        ValueError: it has less than four.
    """
    whole = batch_length(batch)
    if whole < 4:
        raise ValueError("too small")
    cut = partial(_cut, whole=whole)
    return tree_map_only(Tensor, cut, batch)


def _cut(tensor: Tensor, *, whole: int) -> Tensor:
    return tensor[: whole // 4] if tensor.dim() and len(tensor) == whole else tensor


def _repeated(loop: MeasuredLoop, work: Callable[[], Any]) -> float:
    """Seconds of ``work``: the mean of as many as fit, after a first one, on every rank alike."""
    first = _timed(loop, work, 1)
    count = loop.agree(max(1, min(MOST_REPEATS, int(SECONDS / max(first, 1e-6)))))
    return _timed(loop, work, count) / count


def _timed(loop: MeasuredLoop, work: Callable[[], Any], count: int) -> float:
    synchronize(loop.session.device)
    started = time.perf_counter()
    for _ in range(count):
        work()
        loop.goes_on()
    synchronize(loop.session.device)
    return time.perf_counter() - started


def _sizes(loop: MeasuredLoop, kept: _Gradients) -> dict[str, int]:
    """Bytes of what training keeps."""
    optimizers = loop.session.optimizers
    parameters = {id(p): p for p in parameters_of(*optimizers)}
    state = [value for each in optimizers for entry in each.state.values() for value in entry.values()]
    return {
        "parameters": sum(map(tensor_bytes, parameters.values())),
        "gradients": sum(tensor_bytes(gradient) for _, gradient in kept.found),
        "optimizer_state": sum(tensor_bytes(value) for value in state if isinstance(value, Tensor)),
        "batch": tensor_bytes(loop.batch),
        **(_device_memory(torch.cuda.memory_stats()) if loop.session.device.type == "cuda" else {}),
    }


def _device_memory(stats: Mapping[str, int]) -> dict[str, int]:
    """What the allocator holds, of `torch.cuda.memory_stats`."""
    held, split = stats.get("reserved_bytes.all.peak", 0), stats.get("inactive_split_bytes.all.current", 0)
    return {"reserved": held, "split": split}


def peak_memory(loop: MeasuredLoop) -> int:
    """Peak bytes of this process so far: resident on the host, allocated on a device."""
    if loop.session.device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
