"""Gradients of the user's loss over chosen samples, as one process or several would take them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_map
from torch.utils.data import default_collate

from autotune.runtime.loader import mover
from autotune.trial.child.loaded_task import LoadedTask, run_eagerly, seed_everything

Gradient = list[Tensor | None]


class Gradients:
    """Gradients of a task's loss over samples.

    Args:
        task: the loaded task file.
        seed: of weights and of what the loss draws.
        clock: gives seconds.
    """

    def __init__(self, task: LoadedTask, seed: int, clock: Callable[[], float]) -> None:
        self.task, self.seed, self.clock = task, seed, clock
        self.model = task.build_model(seed)
        run_eagerly()
        self.parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.collate = getattr(task.module, "collate_fn", None) or default_collate
        self.move = mover(torch.device(task.device), non_blocking=False)
        self.pace = 0.0
        """Seconds of one sample; the first gradient, with all that is done once, is slow."""

    def of(self, parts: Sequence[Sequence[Any]], salt: int = 0, scale: float = 1.0) -> Gradient:
        """The gradient over all parts, each weighted by its samples, as several processes take it.

        Args:
            parts: samples of each part.
            salt: added to the seed, for other random numbers.
            scale: of the loss; divided out again. It changes what is rounded.
        """
        count = sum(len(part) for part in parts)
        begun = self.clock()
        self._forget()
        for part in parts:
            loss = self._loss(part, self.seed + salt)
            if loss.requires_grad:
                torch.autograd.backward(loss * (scale * len(part) / count))
        found = [p.grad if p.grad is None or scale == 1.0 else p.grad / scale for p in self.parameters]
        self._forget()
        pace = (self.clock() - begun) / count
        self.pace = min(self.pace or pace, pace)
        return found

    def settle_batch_norm(self, samples: Sequence[Any]) -> None:
        """Give BatchNorm the statistics of ``samples``: a deep network overflows with those it begins with."""
        layers = [module for module in self.model.modules() if isinstance(module, _BatchNorm)]
        for layer in layers:
            layer.momentum = 1.0
            if layer.running_mean is None:
                layer.running_mean = torch.zeros(layer.num_features, device=self.task.device)
                layer.running_var = torch.ones(layer.num_features, device=self.task.device)
                layer.track_running_stats = True
        if layers:
            try:
                with torch.no_grad():
                    self._loss(samples, self.seed)
            except Exception:
                return  # the comparison will say so

    def _loss(self, samples: Sequence[Any], seed: int) -> Tensor:
        seed_everything(seed)
        batch = self.collate([_copy(sample) for sample in samples])
        return self.task.loss(self.model, batch if self.move is None else self.move(batch))

    def _forget(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None


def _copy(sample: Any) -> Any:
    """A copy: some collate functions change their argument. A deep copy would copy all that a view is of."""
    return tree_map(_copied_leaf, sample)


def _copied_leaf(leaf: Any) -> Any:
    try:
        return leaf.clone() if isinstance(leaf, Tensor) else copy.copy(leaf)
    except Exception:
        return leaf


def relative_error(found: Gradient, whole: Gradient) -> float:
    """L2 norm of the difference, relative to that of ``whole``."""
    return norm([_difference(one, other) for one, other in zip(found, whole, strict=True)]) / norm(whole)


def _difference(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return one if other is None else other if one is None else one - other


def norm(gradient: Gradient) -> float:
    """L2 norm over all parameters."""
    return math.hypot(*(_part_norm(part) for part in gradient if part is not None))


def _part_norm(part: Tensor) -> float:
    values = part.coalesce().values() if part.is_sparse else part
    values = torch.view_as_real(values) if values.is_complex() else values
    return float(torch.linalg.vector_norm(values, dtype=torch.promote_types(values.dtype, torch.float32)))
