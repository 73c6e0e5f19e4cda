"""What runs when a prepared model is called.

A prepared model stays the user's own object: its class, names, state dict, signature and methods. Autocast, the
compiled graph and the exchange of gradients are layers around its call, kept where `torch.nn.Module.compile` keeps a
compiled call. PyTorch leaves that out of copies and pickles, so both are plain models.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, MutableMapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

Call = Callable[..., Any]
AutocastFactory = Callable[[], contextlib.AbstractContextManager[Any]]
HALF = (torch.float16, torch.bfloat16)
SLOT = "_compiled_call_impl"
"""The attribute that `torch.nn.Module.__call__` looks at first."""


class Layer:
    """One layer around a model's call. A copied or pickled model starts without it.

    Attributes:
        outermost: whether nothing may go around it.
    """

    outermost = False

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """What the model returns."""
        raise NotImplementedError

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


def current(model: nn.Module) -> Call:
    """What calling ``model`` runs now."""
    found: Call | None = vars(model).get(SLOT)
    return found if found is not None else model._call_impl


def install(model: nn.Module, call: Call) -> Callable[[], None]:
    """Let calling ``model`` run ``call``. Returns how to undo it."""
    before = vars(model).get(SLOT)
    vars(model)[SLOT] = call

    def undo() -> None:
        if vars(model).get(SLOT) is call:
            vars(model)[SLOT] = before

    return undo


class Autocast(Layer):
    """A call that runs in autocast. Outputs come back in float32, unless the model itself has a lower precision."""

    def __init__(self, model: nn.Module, call: Call, autocast: AutocastFactory) -> None:
        self.call, self.autocast = call, autocast
        self._converts = not any(p.dtype in HALF for p in model.parameters())

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """The model's outputs."""
        with self.autocast():
            outputs = self.call(*arguments, **options)
        return to_float32(outputs) if self._converts else outputs


class Bare(nn.Module):
    """The model as modules that wrap it see it: the same parameters and buffers, and the given call.

    Args:
        model: the user's.
        layer: makes the call from the model, which `torch.nn.DataParallel` replaces by its replicas.
    """

    def __init__(self, model: nn.Module, layer: Callable[[nn.Module], Call]) -> None:
        super().__init__()
        self.model = model
        self.layer = layer

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The model's outputs."""
        return self.layer(self.model)(*inputs, **kwargs)


def to_float32(value: Any) -> Any:
    """``value`` with every half-precision tensor in it as float32; containers keep class and other items."""
    return with_tensors(value, lambda tensor: tensor.float() if tensor.dtype in HALF else tensor)


def with_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """``value`` with ``change`` made to every tensor in it; containers keep class and other items."""
    again = partial(with_tensors, change=change)
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(again, value))
    if type(value) is tuple:
        return tuple(map(again, value))
    if isinstance(value, list):
        items = copy.copy(value)
        items[:] = map(again, value)
        return items
    if isinstance(value, MutableMapping):
        entries = copy.copy(value)
        for key, item in value.items():
            if isinstance(item, Tensor | tuple | list | MutableMapping):
                entries[key] = again(item)
        return entries
    return value
