"""Memory layout: NHWC ("channels last") weights for models with two-dimensional convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import LBFGS, Optimizer

from autotune.runtime.applier import Applier, Training
from autotune.runtime.appliers.optimizer import OptimizerImpl
from autotune.runtime.calls import Call, Layer, with_tensors

VIEW = "view size is not compatible"
VIEWS = "the model takes views that need the usual layout"
FLATTENS = "the optimizer flattens gradients, which needs the usual layout"


def has_image_convolutions(model: nn.Module) -> bool:
    """True where a convolution holds a four-dimensional weight."""
    return any(isinstance(module, nn.Conv2d | nn.ConvTranspose2d) for module in model.modules())


def is_channels_last(model: nn.Module) -> bool:
    """True where the user has laid out a weight of ``model`` so himself."""
    weights = [p for p in model.parameters() if not is_lazy(p) and p.dim() == 4 and not p.is_contiguous()]
    return any(weight.is_contiguous(memory_format=torch.channels_last) for weight in weights)


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
        if not self.value or is_channels_last(model):
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
        self.training.notes.not_applied("channels_last", VIEWS)
        self._place_state()

    def _place_state(self) -> None:
        implementations = self.training.appliers.get("optimizer_impl")
        if isinstance(implementations, OptimizerImpl):
            implementations.place_state()


class Tried(Layer):
    """A call that goes back to the usual layout where the model cannot run in the other one.

    The first calls tell, in training and in evaluation. A call that fails is made again, from the same random numbers
    and buffers. Outputs have the usual layout, of which the user's loop may take views.
    """

    def __init__(self, model: nn.Module, call: Call, gave_up: Callable[[], None]) -> None:
        self.model, self.call, self.gave_up = model, call, gave_up
        self._tried: set[tuple[bool, bool]] = set()
        self._undone = False

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """The model's outputs."""
        if self._undone:
            return self.call(*arguments, **options)
        way = (self.model.training, torch.is_grad_enabled())
        if way in self._tried:
            return with_tensors(self.call(*arguments, **options), usual)
        self._tried.add(way)
        restore = _restorer(self.model)
        try:
            return with_tensors(self.call(*arguments, **options), usual)
        except RuntimeError as error:
            if VIEW not in str(error):
                raise
        self._undone = True
        undo(self.model)
        self.gave_up()
        restore()
        return self.call(*arguments, **options)


def usual(value: Tensor) -> Tensor:
    """``value`` as the same images or volumes lie in a model of the usual layout."""
    return value.contiguous() if value.dim() in (4, 5) and 0 not in value.stride() else value


def _restorer(model: nn.Module) -> Callable[[], None]:
    """What puts the random numbers and the buffers of now back."""
    buffers = [buffer.clone() for buffer in model.buffers()]
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    random = torch.get_rng_state(), {device: torch.cuda.get_rng_state(device) for device in devices}

    def restore() -> None:
        torch.set_rng_state(random[0])
        for device, state in random[1].items():
            torch.cuda.set_rng_state(state, device)
        with torch.no_grad():
            for buffer, before in zip(model.buffers(), buffers, strict=True):
                buffer.copy_(before)

    return restore
