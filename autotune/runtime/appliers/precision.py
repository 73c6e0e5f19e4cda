"""Precision plug-ins. The base is full precision and a working no-op; a variant overrides only what differs.

Each is the applier of one value of the knob, and more: the backward pass and gradient scaling go through it.
"""

from __future__ import annotations

import contextlib
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from autotune.runtime.applier import Applier, Training
from autotune.runtime.appliers.data_parallel import why_not_replicated
from autotune.runtime.appliers.optimizer import parameters_of
from autotune.runtime.calls import Autocast, Call


class Precision(Applier):
    """Full precision: nothing is changed."""

    name = "fp32"

    depth = 30

    def __init__(self, value: str, training: Training) -> None:
        super().__init__(value, training)
        self.device = training.device
        self.skipped_steps = 0
        self._switches = contextlib.ExitStack()

    def start(self) -> str | None:
        """Set the process-wide switches, and read back."""
        return self.why_not()

    def undo(self) -> None:
        """Put the switches back."""
        self._switches.close()

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """The context that the forward pass runs in."""
        return contextlib.nullcontext()

    def around(self, model: nn.Module, call: Call) -> Call:
        """``call``, which is ``model``'s, in `autocast`; outputs of a float32 model come back in float32."""
        return call

    def backward(self, loss: Tensor, **options: Any) -> None:
        """Backward pass of ``loss``, scaled where this precision needs it."""
        loss.backward(**options)  # type: ignore[no-untyped-call]

    def scale_steps(self, optimizer: Optimizer) -> Callable[[], None]:
        """Let ``optimizer.step`` act on unscaled gradients. Returns how to undo it."""
        return lambda: None

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

    def start(self) -> str | None:
        """Switch TF32 on."""
        if self.device.type == "cuda":
            self._switches.enter_context(allow_tf32())
        return self.why_not()

    def why_not(self) -> str | None:
        """TF32 exists on CUDA devices only."""
        return None if self.device.type == "cuda" else "no CUDA device"


class Bf16(Precision):
    """bfloat16 autocast; its range is that of float32, so there is nothing to scale."""

    name = "bf16"
    dtype = torch.bfloat16

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Autocast to this precision's type on this device."""
        return torch.autocast(self.device.type, dtype=self.dtype)

    def convert(self, model: nn.Module) -> str | None:
        """Nothing is converted, but not every model can run in bfloat16."""
        return why_not_replicated(model, self.value)

    def around(self, model: nn.Module, call: Call) -> Call:
        """A layer around ``call``: the model itself is left as it is."""
        return Autocast(model, call, self.autocast) if self.why_not() is None else call

    def why_not(self) -> str | None:
        """PyTorch turns autocast off with a mere warning where it does not support the type."""
        with self.autocast():
            on = torch.is_autocast_enabled(self.device.type)
            return None if on and torch.get_autocast_dtype(self.device.type) is self.dtype else "autocast stays off"


class Fp16(Bf16):
    """float16 autocast with gradient scaling, for accelerators."""

    name = "fp16"
    dtype = torch.float16

    def __init__(self, value: str, training: Training) -> None:
        super().__init__(value, training)
        device = training.device
        self.scaler = torch.amp.GradScaler(device.type, enabled=device.type != "cpu")
        self._stepped: dict[int, Optimizer] = {}
        self._unscaled: dict[int, Optimizer] = {}
        self._scaled = False
        """True where gradients are scaled: a backward pass went through here since the last steps."""
        self._off = "gradient scaling is for accelerators" if device.type == "cpu" else None

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Autocast to float16; none on CPUs, nor once an optimizer has turned out not to take scaled gradients."""
        return contextlib.nullcontext() if self._off else super().autocast()

    def why_not(self) -> str | None:
        """On CPUs fp16 is slow and has no scaler here."""
        return self._off or super().why_not()

    def backward(self, loss: Tensor, **options: Any) -> None:
        """Backward pass of the scaled loss."""
        self.settle()
        self._scale_again()
        self._scaled = True
        self.scaler.scale(loss).backward(**options)  # type: ignore[no-untyped-call]

    def scale_steps(self, optimizer: Optimizer) -> Callable[[], None]:
        """A step that the scaler skips where gradients are not finite: put in place of the instance's own."""
        own = optimizer.step

        def step(_optimizer: Optimizer, *arguments: Any, **options: Any) -> Any:
            return self._step(optimizer, own, *arguments, **options)

        replaced = types.MethodType(step, optimizer)  # a method, as learning-rate schedulers expect
        optimizer.step = replaced  # type: ignore[method-assign]

        def undo() -> None:
            if vars(optimizer).get("step") is replaced:
                optimizer.step = own  # type: ignore[method-assign]

        return undo

    def _step(self, optimizer: Optimizer, own: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if (arguments or options) and self._off is None:
            self._turn_off()  # gradients are made inside the step, where nothing unscales them
        if id(optimizer) in self._stepped:
            self.settle()
        if self._off or not self._scaled or not _has_gradients(optimizer):
            return own(*arguments, **options)
        self._stepped[id(optimizer)] = optimizer
        replaced, optimizer.step = optimizer.step, own  # type: ignore[method-assign]
        try:
            return self.scaler.step(optimizer)
        finally:
            optimizer.step = replaced  # type: ignore[method-assign]

    def _turn_off(self) -> None:
        self.settle()
        self.unscale(self._unscaled.values())
        self._off = "optimizer.step(closure) does not work with scaled gradients"
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=False)

    def settle(self) -> None:
        """Update the scale once for all optimizers of a step (updating it between them would unscale wrongly)."""
        if not self._stepped:
            return
        before = self.scaler.get_scale()
        self.scaler.update()
        self.skipped_steps += self.scaler.get_scale() < before
        self._stepped.clear()
        self._unscaled.clear()
        self._scaled = False

    def _scale_again(self) -> None:
        """Gradients that were unscaled and never stepped on are scaled like those that will be added to them."""
        if not self._unscaled:
            return
        scale = self.scaler.get_scale()
        for optimizer in self._unscaled.values():
            for parameter in parameters_of(optimizer):
                if parameter.grad is not None:
                    parameter.grad.mul_(scale)
        self.scaler.update(scale)
        self._unscaled.clear()

    def unscale(self, optimizers: Iterable[Optimizer]) -> None:
        """Unscale each optimizer's gradients once per step."""
        for optimizer in optimizers:
            if id(optimizer) not in self._unscaled and not self._off and _has_gradients(optimizer):
                self.scaler.unscale_(optimizer)
                self._unscaled[id(optimizer)] = optimizer

    def state_dict(self) -> dict[str, Any]:
        """The scaler's state."""
        self.settle()
        return {"scaler": self.scaler.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the scaler; a state without one leaves it alone."""
        if state.get("scaler"):
            self.scaler.load_state_dict(state["scaler"])


PRECISIONS: dict[str, type[Precision]] = {plugin.name: plugin for plugin in (Precision, Tf32, Bf16, Fp16)}


def create(value: str, training: Training) -> Precision:
    """The plug-in called ``value``."""
    return PRECISIONS[value](value, training)


def _has_gradients(optimizer: Optimizer) -> bool:
    return any(parameter.grad is not None for parameter in parameters_of(optimizer))


@contextlib.contextmanager
def allow_tf32() -> Iterator[None]:
    """TF32 for matrix products and convolutions while inside.

    PyTorch 2.9 began to refuse mixing its old and new switches, so whichever the user has used is used here.
    """
    conv = torch.backends.cudnn.allow_tf32
    undo = _matmul_tf32()
    torch.backends.cudnn.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = conv
        undo()


def _matmul_tf32() -> Callable[[], None]:
    matmul = torch.backends.cuda.matmul
    try:
        before = torch.get_float32_matmul_precision()
    except RuntimeError:
        new_style: str = matmul.fp32_precision
        matmul.fp32_precision = "tf32"

        def undo() -> None:
            matmul.fp32_precision = new_style

        return undo
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the old switch announces its successor, which 2.4 does not have
        torch.set_float32_matmul_precision("high")
    return lambda: torch.set_float32_matmul_precision(before)
