"""What is trained, as marks: the structure of a model and the class of an optimizer. Names and values stay out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from autotune.core.identity import OTHER_OPTIMIZER, Prepared

DIGITS = 16
WRAPPERS = (DistributedDataParallel, nn.DataParallel)
SHAPES = ("kernel_size", "stride", "dilation", "groups", "num_heads", "num_layers", "bidirectional", "output_size")
"""Attributes of PyTorch's own layers that decide speed and that no parameter's shape shows."""


def structure_of(*models: nn.Module) -> str:
    """A digest of the models' layers: kinds of PyTorch's own, shapes and types of their parameters.

    Wrappers (DistributedDataParallel, DataParallel, a compiled module) do not count, nor do names and the user's own
    classes.
    """
    text = json.dumps([list(_layers(model)) for model in models])
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def parameter_count(models: Iterable[nn.Module]) -> int:
    """The number of parameters of all ``models``, each counted once."""
    found = {id(parameter): parameter for model in models for parameter in model.parameters()}
    return sum(parameter.numel() for parameter in found.values())


def optimizer_of(optimizer: Optimizer) -> str:
    """The class's name where it is PyTorch's own."""
    kinds = (kind for kind in type(optimizer).__mro__ if kind.__module__.startswith("torch.optim."))
    own = next(kinds, Optimizer)
    return OTHER_OPTIMIZER if own is Optimizer else own.__name__


def prepared(models: list[nn.Module], optimizers: Iterable[Optimizer]) -> Prepared:
    """The marks of what a training has prepared."""
    return Prepared(
        models=[(parameter_count([model]), structure_of(model)) for model in models],
        parameters=parameter_count(models),
        structure=structure_of(*models),
        optimizers=sorted({optimizer_of(optimizer) for optimizer in optimizers}),
    )


def _layers(model: nn.Module) -> Iterator[list[Any]]:
    for module in model.modules():
        if not isinstance(module, WRAPPERS) and not hasattr(module, "_orig_mod"):
            shapes = [[str(p.dtype), *p.shape, p.requires_grad] for p in module.parameters(recurse=False)]
            yield [_kind(module), _shape(module), shapes]


def _kind(module: nn.Module) -> str:
    kind = type(module)
    return kind.__name__ if kind.__module__.startswith("torch.nn.") else ""


def _shape(module: nn.Module) -> list[str]:
    if not _kind(module):
        return []
    return [f"{name}={getattr(module, name)}" for name in SHAPES if hasattr(module, name)]
