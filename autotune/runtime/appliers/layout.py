"""Memory layout: NHWC ("channels last") weights for models with two-dimensional convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim import LBFGS, Optimizer

from autotune.runtime.applier import Applier, Training
from autotune.runtime.appliers.optimizer import OptimizerImpl
from autotune.runtime.calls import Call, Layer

VIEW = "view size is not compatible"
VIEWS = "the model takes views that need the usual layout"
FLATTENS = "the optimizer flattens gradients, which needs the usual layout"


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


def flattens(optimizer: Optimizer) -> bool:
    """True where ``optimizer`` makes one vector of all gradients."""
    return isinstance(optimizer, LBFGS)


def undo(model: nn.Module) -> None:
    """Back to the usual layout."""
    model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]


class ChannelsLast(Applier):
    """NHWC weights where models and optimizers take them."""

    depth = 20

    def __init__(self, value: bool, training: Training) -> None:
        super().__init__(value, training)
        self._converted: list[nn.Module] = []
        self._flattens = False

    def convert(self, model: nn.Module) -> str | None:
        """Lay out the model's weights, and the optimizers' state with them."""
        if not self.value:
            return None
        reason = FLATTENS if self._flattens else apply(model)
        if reason is None:
            self._converted.append(model)
            self._place_state()
        return reason

    def around(self, model: nn.Module, call: Call) -> Call:
        """A first call that may give up."""
        converted = any(model is known for known in self._converted)
        return Tried(model, call, self._give_up) if converted else call

    def optimizer(self, optimizer: Optimizer) -> str | None:
        """Back to the usual layout for optimizers that flatten gradients."""
        self._flattens = self._flattens or flattens(optimizer)
        if not self.value or not self._flattens:
            return None
        for model in self._converted:
            undo(model)
        return FLATTENS

    def _give_up(self) -> None:
        self.training.notes.refuse("channels_last", VIEWS)
        self._place_state()

    def _place_state(self) -> None:
        implementations = self.training.appliers.get("optimizer_impl")
        if isinstance(implementations, OptimizerImpl):
            implementations.place_state()


class Tried(Layer):
    """A call that goes back to the usual layout where the model cannot run in the other one.

    The first call tells. It is made again, from the same random numbers and buffers.
    """

    def __init__(self, model: nn.Module, call: Call, gave_up: Callable[[], None]) -> None:
        self.model, self.call, self.gave_up = model, call, gave_up
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
        self.gave_up()
        torch.set_rng_state(random)
        with torch.no_grad():
            for buffer, before in zip(self.model.buffers(), buffers, strict=True):
                buffer.copy_(before)
        return self.call(*arguments, **options)
