"""Memory layout: NHWC ("channels last") weights for models with two-dimensional convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from autotune.runtime.calls import Call, Layer

VIEW = "view size is not compatible"
REFUSED = "the model takes views that need the usual layout"


def has_image_convolutions(model: nn.Module) -> bool:
    """True where a convolution holds a four-dimensional weight."""
    return any(isinstance(module, nn.Conv2d | nn.ConvTranspose2d) for module in model.modules())


def apply(model: nn.Module) -> str | None:
    """Convert ``model`` in place. Returns why it was left alone, or None."""
    if not has_image_convolutions(model):
        return "the model has no two-dimensional convolutions"
    if any(is_lazy(parameter) for parameter in model.parameters()):
        return "the model has layers that take their shape from the first batch"
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return None


def undo(model: nn.Module) -> None:
    """Back to the usual layout."""
    model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]


class Tried(Layer):
    """A call that goes back to the usual layout where the model cannot run in the other one.

    The first call tells. It is made again, from the same random numbers and buffers.
    """

    def __init__(self, model: nn.Module, call: Call, refuse: Callable[[str, str], None]) -> None:
        self.model, self.call, self.refuse = model, call, refuse
        self._tried = False

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """The model's outputs."""
        if self._tried:
            return self.call(*arguments, **options)
        self._tried = True
        random, buffers = torch.get_rng_state(), [buffer.clone() for buffer in self.model.buffers()]
        try:
            return self.call(*arguments, **options)
        except RuntimeError as error:
            if VIEW not in str(error):
                raise
        undo(self.model)
        self.refuse("channels_last", REFUSED)
        torch.set_rng_state(random)
        with torch.no_grad():
            for buffer, before in zip(self.model.buffers(), buffers, strict=True):
                buffer.copy_(before)
        return self.call(*arguments, **options)
