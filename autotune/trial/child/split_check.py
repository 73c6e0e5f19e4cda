"""Whether several processes keep the gradient: a batch whole, and the same batch split as processes would share it.

Processes weigh their gradients by samples. That is exact for a mean over samples, and changes training for any other
loss: a mean over tokens, a class-weighted mean, a sum, or a loss that compares the samples of a batch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._pytree import tree_map
from torch.utils.data import IterableDataset

from autotune.knobs.baseline import DEFAULT_BATCH
from autotune.knobs.task import unchecked
from autotune.runtime.shards import shard
from autotune.runtime.sharing import mover
from autotune.trial.child.first_steps import norm
from autotune.trial.child.task import LoadedTask, run_eagerly, seed_everything

BATCHES, MOST_SAMPLES = 4, 32
SECONDS = 3.0
"""A batch is not begun later than this."""
TOLERANCE = 1e-2
"""Relative L2 error of the whole gradient that still counts as the same. Means over samples reach 1e-6 in fp32; a mean
over tokens whose lengths vary by a quarter gives 1.5e-2 and more."""
NOISE_FACTOR = 5.0
"""An error must be more than this many times what other random numbers change."""
CHANGED = (
    "the loss of a batch is not the mean of its samples' losses (split, its gradient is off by {:.0%}): another number"
    " of processes would change training; a mean over samples would not"
)
RANDOM = "the loss draws random numbers, or changes from call to call"
NOTHING = "the gradient is zero or not finite"

Gradient = list[Tensor | None]


def check(task: LoadedTask, seed: int, clock: Callable[[], float] = time.monotonic) -> tuple[str | None, str | None]:
    """Return why several processes would change training, and why that could not be found out; each may be None."""
    try:
        return _check(task, seed, clock)
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return None, unchecked(f"{type(error).__name__}: {lines[0]}"[:150])


def _check(task: LoadedTask, seed: int, clock: Callable[[], float]) -> tuple[str | None, str | None]:
    dataset = task.build_dataset(seed)
    size = min(MOST_SAMPLES, task.current().get("batch_size", DEFAULT_BATCH))
    if isinstance(dataset, IterableDataset) or size < 4:
        return None, None
    gradients = _Gradients(task, seed)
    started, compared = clock(), 0
    for samples in islice(_batches(dataset, size), BATCHES):
        if compared and clock() - started > SECONDS:
            break
        whole = gradients.of([samples])
        if not 0 < norm(whole) < math.inf:
            continue
        compared += 1
        parts = [[samples[k] for k in shard(range(len(samples)), 2, rank).samples] for rank in range(2)]
        off = _relative_error(gradients.of(parts), whole)
        if off <= TOLERANCE:
            continue
        if off <= NOISE_FACTOR * _relative_error(gradients.of([samples], salt=1), whole):
            return None, unchecked(RANDOM)
        return CHANGED.format(off), None
    return None, None if compared else unchecked(NOTHING)


def _batches(dataset: Any, size: int) -> Iterator[list[Any]]:
    """Yield batches of samples from all over ``dataset``."""
    count = len(dataset)
    for first in range(BATCHES):
        indices = range(first, count, max(1, count // size))[:size]
        if len(indices) >= 4:
            yield [dataset[index] for index in indices]


class _Gradients:
    """Gradients of a task's loss in training mode, without dropout and with BatchNorm's present statistics."""

    def __init__(self, task: LoadedTask, seed: int) -> None:
        self.task, self.seed = task, seed
        self.model = task.build_model(seed)
        run_eagerly()
        self.model.train()
        for module in self.model.modules():
            if isinstance(module, _BatchNorm | _DropoutNd):
                module.eval()
            elif isinstance(module, nn.RNNBase | nn.MultiheadAttention):
                module.dropout = 0.0
        self.move = mover(torch.device(task.device), non_blocking=False)

    def of(self, parts: Sequence[Sequence[Any]], salt: int = 0) -> Gradient:
        """Return the gradient over all parts, each weighted by its samples, as several processes take it."""
        count = sum(len(part) for part in parts)
        self.model.zero_grad(set_to_none=True)
        for part in parts:
            seed_everything(self.seed + salt)
            batch = self.task.collate([tree_map(_copied, sample) for sample in part])
            loss = self.task.loss(self.model, batch if self.move is None else self.move(batch))
            if loss.requires_grad:
                torch.autograd.backward(loss * (len(part) / count))
        return [p.grad.clone() if p.grad is not None else None for p in self.model.parameters()]


def _copied(leaf: Any) -> Any:
    """Return a copy: some collate functions change their argument."""
    return leaf.clone() if isinstance(leaf, Tensor) else leaf


def _relative_error(found: Gradient, whole: Gradient) -> float:
    pairs = zip(found, whole, strict=True)
    off = [one if other is None else other if one is None else one - other for one, other in pairs]
    return norm(off) / norm(whole)
