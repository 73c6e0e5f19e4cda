"""The precision of matrix products and convolutions: autocast, gradient scaling and PyTorch's switches of TF32.

The backward pass and gradient scaling of a session go through its `Precision`.
"""

from __future__ import annotations

import contextlib
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from autotune import devices
from autotune.devices import CPU, Device
from autotune.knobs.change import Change, Refused, Training
from autotune.knobs.knob import TRACKING, Knob, Word, unless
from autotune.knobs.level import AMP
from autotune.knobs.optimizer_impl import parameters_of
from autotune.probes.facts import Inventory

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from autotune.knobs.model_call import Call

BF16_FEATURES = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16", "apple-amx")
"""CPU instructions without which bfloat16 is emulated, many times slower (pytorch/pytorch#118499)."""
LEAST_CAPABILITY = {"tf32": (8, 0), "bf16": (8, 0), "fp16": (7, 0)}
"""CUDA compute capability from which a precision is faster than fp32."""
WHY_NOT = {"tf32": "no CUDA device", "fp16": "slow on CPUs, and gradient scaling is for accelerators"}
"""Why a precision is not for other devices."""


def _why_not_faster(precision: str, inventory: Inventory, device: Device) -> str | None:
    """Return why a precision cannot be faster than fp32 on ``device``, or None."""
    if precision == "fp32":
        return None
    if precision not in device.precision_gain:
        return WHY_NOT[precision] if device.on_host else f"nothing is known of it on {device.type}"
    if device.on_host:
        return None if native_bf16(inventory) else "this CPU has no bfloat16 instructions"
    return lacking(inventory, device, LEAST_CAPABILITY[precision])


def lacking(inventory: Inventory, device: Device, least: tuple[int, int]) -> str | None:
    """Return what ``device``, or the least able GPU if it is any, lacks of CUDA's compute capability ``least``; None if
    nothing, or not known."""
    own = min((gpu.capability for gpu in inventory.gpus if device.index in (None, gpu.index)), default=least)
    return None if own >= least else f"needs capability {least[0]}.{least[1]}, the GPU has {own[0]}.{own[1]}"


def native_bf16(inventory: Inventory) -> bool:
    """Return True if the CPU computes in bfloat16 itself."""
    return any(feature in BF16_FEATURES for feature in inventory.cpu.features)


class Precision(Change):
    """Precision ``name`` on ``device``: autocast, and gradient scaling for float16.

    PyTorch's own `GradScaler` passes everything on if it is not enabled.
    """

    _off: str | None = None
    """Why there is no autocast."""

    def __init__(self, device: torch.device, name: str = "fp32") -> None:
        import torch

        self.device, self.skipped_steps = device, 0
        self.dtype: torch.dtype | None = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(name)
        self.scaler = torch.amp.GradScaler(device.type, enabled=name == "fp16")
        self._inside = 0
        """Contexts of this session that are open."""
        self._stepped: set[Optimizer] = set()
        self._unscaled: set[Optimizer] = set()
        self._scaled = False
        """True if gradients are scaled: a backward pass went through here since the last steps."""

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context that the forward pass runs in."""
        return contextlib.nullcontext() if self.dtype is None or self._off else self._to_dtype()

    @contextlib.contextmanager
    def _to_dtype(self) -> Iterator[None]:
        import torch

        self._inside += 1
        try:
            with torch.autocast(self.device.type, dtype=self.dtype):
                yield
        finally:
            self._inside -= 1

    def _user_decides(self) -> bool:
        """Return True inside a context of the user's own, which may also switch autocast off."""
        import torch

        nested = torch.autocast_increment_nesting() - 1
        torch.autocast_decrement_nesting()
        return bool(nested > self._inside)

    def on_model(self, model: nn.Module) -> Change | None:
        """Put autocast around the model's call, and return its outputs in float32 if the model is.

        A model that keeps some of what it computes is left alone from its first training call on.
        """
        from torch import nn

        from autotune.knobs.model_call import HALF, Layered, attributes_to_float32, compiled_by_user, to_float32

        if self.dtype is None or self._off:
            return None
        if compiled_by_user(model):
            return Refused("the script compiles its model itself")
        if isinstance(model, nn.DataParallel) and len(model.device_ids) > 1:
            return Refused("torch.nn.DataParallel runs it in a type of its own")
        converts = looks = not any(p.dtype in HALF for p in model.parameters())

        def layer(call: Call) -> Call:
            def in_autocast(*arguments: Any, **options: Any) -> Any:
                nonlocal looks
                if self._user_decides():
                    return call(*arguments, **options)
                with self.autocast():
                    outputs = call(*arguments, **options)
                if looks and model.training:
                    looks, kept = False, ", ".join(attributes_to_float32(model))
                    if kept:
                        layered.read = lambda: f"the model keeps {kept}, which your code would find in {self.dtype}"
                        layered.undo()
                return to_float32(outputs) if converts else outputs

            return in_autocast

        layered = Layered(model, layer)
        return layered

    def why_not(self) -> str | None:
        """Return the reason if autocast stays off: PyTorch does so with a mere warning."""
        import torch

        if self.dtype is None:
            return None
        with self.autocast():
            on = torch.is_autocast_enabled(self.device.type)
            right = on and torch.get_autocast_dtype(self.device.type) is self.dtype
        return self._off or (None if right else "autocast stays off")

    def backward(self, loss: Tensor, **options: Any) -> None:
        """Run the backward pass of ``loss``, scaled if this precision needs it."""
        self.settle()
        self._scale_again()
        self._scaled = self.scaler.is_enabled()
        self.scaler.scale(loss).backward(**options)  # type: ignore[no-untyped-call]

    def on_optimizer(self, optimizer: Optimizer) -> Change | None:
        """Put a step that the scaler skips if gradients are not finite in place of the instance's own."""
        if not self.scaler.is_enabled():
            return None
        own, instance = optimizer.step, vars(optimizer)
        before = {name: value for name, value in instance.items() if name == "step"}

        def step(_optimizer: Optimizer, *arguments: Any, **options: Any) -> Any:
            return self.step(optimizer, own, *arguments, **options)

        scaled = instance["step"] = types.MethodType(step, optimizer)  # a method, as learning-rate schedulers expect

        def put_back() -> None:
            if instance.get("step") is scaled:
                del instance["step"]
                instance.update(before)

        return Change(put_back)

    def step(self, optimizer: Optimizer, own: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Make a step of ``optimizer`` through the scaler; ``own`` is the user's own step."""
        if (arguments or options) and self._off is None:
            self._turn_off()  # gradients are made inside the step, where nothing unscales them
        if optimizer in self._stepped:
            self.settle()
        if self._off or not self._scaled or not _has_gradients(optimizer):
            return own(*arguments, **options)
        self._stepped.add(optimizer)
        replaced, optimizer.step = optimizer.step, own  # type: ignore[method-assign]
        try:
            return self.scaler.step(optimizer)
        finally:
            optimizer.step = replaced  # type: ignore[method-assign]

    def _turn_off(self) -> None:
        import torch

        self.settle()
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
        for parameter in parameters_of(*self._unscaled):
            if parameter.grad is not None:
                parameter.grad.mul_(scale)
        self.scaler.update(scale)
        self._unscaled.clear()

    def unscale(self, optimizers: Iterable[Optimizer]) -> None:
        """Bring each optimizer's gradients to their true size, once per step, before they are looked at."""
        for optimizer in optimizers:
            if optimizer not in self._unscaled and self.scaler.is_enabled() and _has_gradients(optimizer):
                self.scaler.unscale_(optimizer)
                self._unscaled.add(optimizer)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs: the scaler's state."""
        self.settle()
        return {"scaler": self.scaler.state_dict()} if self.scaler.is_enabled() else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the scaler; a state without one leaves it alone."""
        if state.get("scaler"):
            self.scaler.load_state_dict(state["scaler"])


class _Tf32(Precision):
    """float32 storage, TF32 matrix products and convolutions (CUDA, capability 8.0).

    PyTorch 2.9 began to refuse mixing its old and new switches, so whichever the user has used is used here.
    """

    def __init__(self, device: torch.device, name: str) -> None:
        import torch

        super().__init__(device, name)
        restore = contextlib.ExitStack()
        self.back = restore.close
        matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
        restore.callback(setattr, cudnn, "allow_tf32", cudnn.allow_tf32)
        own = _own_products()
        if own is None:
            restore.callback(setattr, matmul, "fp32_precision", matmul.fp32_precision)
            matmul.fp32_precision = "tf32"
        else:
            restore.callback(torch.set_float32_matmul_precision, own)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the old switch announces its successor, which came with 2.9
                torch.set_float32_matmul_precision("high")
        cudnn.allow_tf32 = True


def _own_products() -> str | None:
    """Return this process's precision of matrix products; None if PyTorch's new switches set it, one by one."""
    import torch

    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def asks_for_tf32() -> bool:
    """Return True if this process multiplies in TF32 by switches of its own, old or new."""
    import torch

    own = _own_products()
    return bool(torch.backends.cuda.matmul.fp32_precision == "tf32") if own is None else own != "highest"


def _has_gradients(optimizer: Optimizer) -> bool:
    return any(parameter.grad is not None for parameter in parameters_of(optimizer))


def _start(value: str, training: Training) -> Change:
    if value not in devices.of(training.device).precision_gain:
        return Refused(WHY_NOT[value])
    return (_Tf32 if value == "tf32" else Precision)(training.device, value)


def of(training: Training) -> Precision:
    """Return the precision of a session."""
    found = training.started.get("precision")
    return found if isinstance(found, Precision) else Precision(training.device)


PLAIN = {
    "fp32": "no autocast",
    "tf32": "torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True",
    "bf16": 'with torch.autocast("{device}", dtype=torch.bfloat16): around the forward pass',
    "fp16": 'with torch.autocast("{device}", dtype=torch.float16): around the forward pass, and torch.amp.GradScaler',
}

PRECISION = Knob(
    name="precision",
    words="{}",
    level=AMP,
    kind=Word(tuple(PLAIN)),
    neutral="fp32",
    applied="model",
    choices=lambda context: {name: _why_not_faster(name, context.inventory, context.device) for name in PLAIN},
    # never fp16 in place of bf16: it needs a scaler, which was not measured
    adapted=lambda value, inventory: "fp32" if _why_not_faster(value, inventory, inventory.device) else value,
    why={
        "bf16": "faster products; losses track fp32",
        "fp16": "faster products; losses track fp32",
        "tf32": "tensor cores; losses track fp32",
        "fp32": "lower precision is not faster here",
    },
    loss_tolerance={"tf32": 0.03, "bf16": 0.05, "fp16": 0.05},
    spread=0.30,
    gain=lambda settings, context: context.device.precision_gain.get(settings.precision, 0.0),
    changes_memory=True,
    keeps=TRACKING,
    start=_start,
    on_model=lambda _value, model, training: of(training).on_model(model),
    on_optimizer=lambda _value, optimizer, training: of(training).on_optimizer(optimizer),
    plain=lambda plan: PLAIN[plan.settings.precision].format(device=plan.device.type),
)


def _set_products(value: str, _model: nn.Module, training: Training) -> Change | None:
    """Set it once, when training begins: what a script computes before that stays exact.

    oneDNN multiplies in bfloat16, and sums in float32. A precision that the user has chosen is kept.
    """
    import torch

    if "matmul_precision" in training.started:
        return None
    if training.device.type != CPU.type:
        return Refused("it is for CPUs")
    if _own_products() != "highest":
        return Refused("you have set the precision of matrix products yourself")
    torch.set_float32_matmul_precision(value)
    training.started["matmul_precision"] = Change(lambda: torch.set_float32_matmul_precision("highest"))
    return training.started["matmul_precision"]


MATMUL_PRECISION = Knob(
    name="matmul_precision",
    level=AMP,
    kind=Word(("highest", "medium")),
    neutral="highest",
    choices=lambda context: unless(_why_not_faster("bf16", context.inventory, CPU), "highest", "medium"),
    devices=(CPU,),
    applies=lambda settings: settings.precision == "fp32",
    adapted=lambda value, inventory: value if native_bf16(inventory) else "highest",
    why={"medium": "faster products; losses track fp32", "highest": "bfloat16 products are not faster here"},
    loss_tolerance={"medium": 0.05},
    spread=0.20,
    gain=lambda settings, _context: CPU.precision_gain["bf16"] * (settings.matmul_precision == "medium"),
    keeps=TRACKING,
    on_model=_set_products,
    plain=lambda plan: f'torch.set_float32_matmul_precision("{plan.settings.matmul_precision}")',
)
