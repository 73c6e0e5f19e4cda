"""What runs when a prepared model is called.

A prepared model stays the user's own object: its class, names, state dict, signature and methods. Autocast, the
compiled graph and the exchange of gradients are layers around its call, kept where `torch.nn.Module.compile` keeps a
compiled call. PyTorch leaves that out of copies and pickles, so both are plain models.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

Call = Callable[..., Any]
AutocastFactory = Callable[[], contextlib.AbstractContextManager[Any]]
SLOT = "_compiled_call_impl"
"""The attribute that `torch.nn.Module.__call__` looks at first."""


class Layer:
    """One layer around a model's call. A copied or pickled model starts without it."""

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
    """A call that runs in autocast and returns float32."""

    def __init__(self, call: Call, autocast: AutocastFactory) -> None:
        self.call, self.autocast = call, autocast

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """The model's outputs in float32."""
        with self.autocast():
            outputs = self.call(*arguments, **options)
        return to_float32(outputs)


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
    """``value`` with every half-precision tensor in it as float32."""
    if isinstance(value, Tensor):
        return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value
    if isinstance(value, Mapping):
        converted = {key: to_float32(item) for key, item in value.items()}
        return converted if type(value) is dict else _like(value, converted)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(to_float32(item) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(to_float32(item) for item in value)
    return value


def _like(value: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    """A mapping of the same class, such as a model library's output record."""
    try:
        return type(value)(**items)
    except TypeError:
        return type(value)(items)  # type: ignore[call-arg]
