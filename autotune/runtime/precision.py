"""Precision plug-ins. The base is full precision and a working no-op; a variant overrides only what differs.

Each is a context manager for the process-wide switches it needs, and puts them back when it leaves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from autotune.runtime.switches import allow_tf32


class Precision:
    """Full precision: nothing is changed."""

    name = "fp32"

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.skipped_steps = 0
        self._switches = contextlib.ExitStack()

    def __enter__(self) -> Precision:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._switches.close()

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """The context that the forward pass runs in."""
        return contextlib.nullcontext()

    def wrap(self, model: nn.Module) -> None:
        """Make ``model.forward`` run in `autocast`; outputs come back in float32."""

    def refused(self) -> str | None:
        """Read back: why this precision is not in force, or None."""
        return None

    def backward(self, loss: Tensor, **options: Any) -> None:
        """Backward pass of ``loss``, scaled where this precision needs it."""
        loss.backward(**options)  # type: ignore[no-untyped-call]

    def step(self, optimizer: Optimizer, *arguments: Any, **options: Any) -> Any:
        """Optimizer step, on unscaled gradients."""
        return optimizer.step(*arguments, **options)

    def settle(self) -> None:
        """Finish what the last step left open, so that `skipped_steps` is exact."""

    def unscale(self, optimizers: Iterable[Optimizer]) -> None:
        """Bring the gradients to their true size before they are looked at."""

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`."""


class Tf32(Precision):
    """float32 storage, TF32 matrix products and convolutions (CUDA, capability 8.0)."""

    name = "tf32"

    def __enter__(self) -> Precision:
        if self.device.type == "cuda":
            self._switches.enter_context(allow_tf32())
        return self

    def refused(self) -> str | None:
        """TF32 exists on CUDA devices only."""
        return None if self.device.type == "cuda" else "no CUDA device"


class Bf16(Precision):
    """bfloat16 autocast; its range is that of float32, so there is nothing to scale."""

    name = "bf16"
    dtype = torch.bfloat16

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Autocast to this precision's type on this device."""
        return torch.autocast(self.device.type, dtype=self.dtype)

    def wrap(self, model: nn.Module) -> None:
        """Replace ``model.forward`` on the instance, as Accelerate does."""
        if not isinstance(model.forward, AutocastForward):
            model.forward = AutocastForward(model.forward, self.autocast)

    def refused(self) -> str | None:
        """PyTorch turns autocast off with a mere warning where it does not support the type."""
        with self.autocast():
            on = torch.is_autocast_enabled(self.device.type)
            return None if on and torch.get_autocast_dtype(self.device.type) is self.dtype else "autocast stays off"


class Fp16(Bf16):
    """float16 autocast with gradient scaling, for accelerators."""

    name = "fp16"
    dtype = torch.float16

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.scaler = torch.amp.GradScaler(device.type, enabled=device.type != "cpu")
        self._stepped: set[int] = set()
        self._unscaled: set[int] = set()
        self._open = False

    def refused(self) -> str | None:
        """On CPUs fp16 is slow and has no scaler here."""
        return "gradient scaling is for accelerators" if self.device.type == "cpu" else super().refused()

    def backward(self, loss: Tensor, **options: Any) -> None:
        """Backward pass of the scaled loss."""
        self.settle()
        self.scaler.scale(loss).backward(**options)  # type: ignore[no-untyped-call]

    def step(self, optimizer: Optimizer, *arguments: Any, **options: Any) -> Any:
        """A step that the scaler skips where gradients are not finite."""
        if id(optimizer) in self._stepped:
            self.settle()
        self._stepped.add(id(optimizer))
        self._open = True
        return self.scaler.step(optimizer, *arguments, **options)

    def settle(self) -> None:
        """Update the scale once for all optimizers of a step (updating it between them would unscale wrongly)."""
        if not self._open:
            return
        before = self.scaler.get_scale()
        self.scaler.update()
        self.skipped_steps += self.scaler.get_scale() < before
        self._stepped.clear()
        self._unscaled.clear()
        self._open = False

    def unscale(self, optimizers: Iterable[Optimizer]) -> None:
        """Unscale each optimizer's gradients once per step."""
        for optimizer in optimizers:
            if id(optimizer) not in self._unscaled:
                self.scaler.unscale_(optimizer)
                self._unscaled.add(id(optimizer))

    def state_dict(self) -> dict[str, Any]:
        """The scaler's state."""
        self.settle()
        return {"scaler": self.scaler.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the scaler; a state without one leaves it alone."""
        if state.get("scaler"):
            self.scaler.load_state_dict(state["scaler"])


PRECISIONS: dict[str, type[Precision]] = {plugin.name: plugin for plugin in (Precision, Tf32, Bf16, Fp16)}


def create(name: str, device: torch.device) -> Precision:
    """The plug-in called ``name``."""
    return PRECISIONS[name](device)


class AutocastForward:
    """A ``forward`` that runs in autocast and returns float32. A class, so that models still copy and pickle."""

    def __init__(
        self, forward: Callable[..., Any], autocast: Callable[[], contextlib.AbstractContextManager[Any]]
    ) -> None:
        self.forward = forward
        self.autocast = autocast

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """The model's outputs in float32."""
        with self.autocast():
            outputs = self.forward(*arguments, **options)
        return to_float32(outputs)


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
