"""Puts each precision in force: autocast, gradient scaling and PyTorch's switches of TF32.

`Precision` is full precision and changes nothing; a variant overrides only what differs. The backward pass and gradient
scaling of a session go through it.
"""

from __future__ import annotations

import contextlib
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from autotune.knobs.knob import Change, Refused, Training
from autotune.knobs.optimizer_impl import parameters_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from autotune.knobs.model_call import Call


class Precision(Change):
    """Full precision: nothing is changed."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.skipped_steps = 0

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context that the forward pass runs in."""
        return contextlib.nullcontext()

    def on_model(self, model: nn.Module) -> Change | None:
        """Let the model run in this precision."""
        return None

    def on_optimizer(self, optimizer: Optimizer) -> Change | None:
        """Let ``optimizer.step`` act on gradients in their true size."""
        return None

    def backward(self, loss: Tensor, **options: Any) -> None:
        """Run the backward pass of ``loss``, scaled if this precision needs it."""
        loss.backward(**options)  # type: ignore[no-untyped-call]

    def settle(self) -> None:
        """Finish what the last step left open, so that `skipped_steps` is exact."""

    def unscale(self, optimizers: Iterable[Optimizer]) -> None:
        """Bring the gradients to their true size before they are looked at."""

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` gave."""


class _Tf32(Precision):
    """float32 storage, TF32 matrix products and convolutions (CUDA, capability 8.0)."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self._switches = contextlib.ExitStack()
        if device.type == "cuda":
            self._switches.enter_context(allow_tf32())

    def why_not(self) -> str | None:
        """Return the reason on other devices: TF32 exists on CUDA devices only."""
        return None if self.device.type == "cuda" else "no CUDA device"

    def undo(self) -> None:
        """Put the switches back."""
        self._switches.close()


class _Bf16(Precision):
    """bfloat16 autocast; its range is that of float32, so there is nothing to scale."""

    def __init__(self, device: torch.device) -> None:
        import torch

        super().__init__(device)
        self.dtype = torch.bfloat16
        self._inside = 0
        """Contexts of this session that are open."""

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Return autocast to this precision's type on this device."""
        return self._counted()

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        import torch

        self._inside += 1
        try:
            with torch.autocast(self.device.type, dtype=self.dtype):
                yield
        finally:
            self._inside -= 1

    def _layer(self, model: nn.Module, call: Call) -> Call:
        """Return ``call`` in autocast. Outputs of a float32 model come back in float32."""
        from autotune.knobs.model_call import HALF, to_float32

        converts = not any(p.dtype in HALF for p in model.parameters())

        def in_autocast(*arguments: Any, **options: Any) -> Any:
            if self._user_decides():
                return call(*arguments, **options)
            with self.autocast():
                outputs = call(*arguments, **options)
            return to_float32(outputs) if converts else outputs

        return in_autocast

    def _user_decides(self) -> bool:
        """Return whether this is inside a context of the user's own, which may also switch autocast off."""
        import torch

        nested = torch.autocast_increment_nesting() - 1
        torch.autocast_decrement_nesting()
        return bool(nested > self._inside)

    def on_model(self, model: nn.Module) -> Change | None:
        """Put autocast around the model's call; the model itself is left as it is."""
        from torch import nn

        from autotune.knobs.model_call import Layered, compiled_by_user

        if compiled_by_user(model):
            return Refused("the script compiles its model itself")
        if isinstance(model, nn.DataParallel) and len(model.device_ids) > 1:
            return Refused("torch.nn.DataParallel runs it in a type of its own")
        return Layered(model, lambda call: self._layer(model, call))

    def why_not(self) -> str | None:
        """Return the reason if autocast stays off: PyTorch does so with a mere warning."""
        import torch

        with self.autocast():
            on = torch.is_autocast_enabled(self.device.type)
            return None if on and torch.get_autocast_dtype(self.device.type) is self.dtype else "autocast stays off"


class _Fp16(_Bf16):
    """float16 autocast with gradient scaling, for accelerators."""

    def __init__(self, device: torch.device) -> None:
        import torch

        super().__init__(device)
        self.dtype = torch.float16
        self.scaler = torch.amp.GradScaler(device.type, enabled=device.type != "cpu")
        self._stepped: dict[int, Optimizer] = {}
        self._unscaled: dict[int, Optimizer] = {}
        self._scaled = False
        """True if gradients are scaled: a backward pass went through here since the last steps."""
        self._off = "gradient scaling is for accelerators" if device.type == "cpu" else None

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Return autocast to float16; nothing on CPUs, or once an optimizer does not take scaled gradients."""
        return contextlib.nullcontext() if self._off else super().autocast()

    def on_model(self, model: nn.Module) -> Change | None:
        """Put autocast around the model's call, if gradients can be scaled."""
        return None if self._off else super().on_model(model)

    def why_not(self) -> str | None:
        """Return why gradients are not scaled, or None."""
        return self._off or super().why_not()

    def backward(self, loss: Tensor, **options: Any) -> None:
        """Run the backward pass of the scaled loss."""
        self.settle()
        self._scale_again()
        self._scaled = True
        self.scaler.scale(loss).backward(**options)  # type: ignore[no-untyped-call]

    def on_optimizer(self, optimizer: Optimizer) -> Change | None:
        """Put a step that the scaler skips if gradients are not finite in place of the instance's own."""
        return None if self._off else _ScaledStep(self, optimizer)

    def step(self, optimizer: Optimizer, own: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Make a step of ``optimizer``, of which ``own`` is the user's, through the scaler."""
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
        import torch

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
        """Scale gradients that were unscaled and never stepped on like those that will be added to them."""
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
        """Return the scaler's state."""
        self.settle()
        return {"scaler": self.scaler.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the scaler; a state without one leaves it alone."""
        if state.get("scaler"):
            self.scaler.load_state_dict(state["scaler"])


class _ScaledStep(Change):
    def __init__(self, precision: _Fp16, optimizer: Optimizer) -> None:
        own = optimizer.step

        def step(_optimizer: Optimizer, *arguments: Any, **options: Any) -> Any:
            return precision.step(optimizer, own, *arguments, **options)

        self._optimizer, self._own = optimizer, vars(optimizer).get("step")
        self._replaced = types.MethodType(step, optimizer)  # a method, as learning-rate schedulers expect
        optimizer.step = self._replaced  # type: ignore[method-assign]

    def undo(self) -> None:
        """Put the user's own step back."""
        if vars(self._optimizer).get("step") is self._replaced:
            if self._own is None:
                del vars(self._optimizer)["step"]
            else:
                self._optimizer.step = self._own  # type: ignore[method-assign]


def _has_gradients(optimizer: Optimizer) -> bool:
    return any(parameter.grad is not None for parameter in parameters_of(optimizer))


@contextlib.contextmanager
def allow_tf32() -> Iterator[None]:
    """Use TF32 for matrix products and convolutions while inside.

    PyTorch 2.9 began to refuse mixing its old and new switches, so whichever the user has used is used here.
    """
    import torch

    conv = torch.backends.cudnn.allow_tf32
    undo = _matmul_tf32()
    torch.backends.cudnn.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = conv
        undo()


def _matmul_tf32() -> Callable[[], None]:
    import torch

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
        warnings.simplefilter("ignore")  # the old switch announces its successor, which came with 2.9
        torch.set_float32_matmul_precision("high")
    return lambda: torch.set_float32_matmul_precision(before)


PRECISIONS: dict[str, type[Precision]] = {"fp32": Precision, "tf32": _Tf32, "bf16": _Bf16, "fp16": _Fp16}


def of(training: Training) -> Precision:
    """Return the precision of a session."""
    found = training.started.get("precision")
    return found if isinstance(found, Precision) else Precision(training.device)
