"""The implementation of an optimizer that the user has built: ``foreach`` or ``fused``.

The implementation is in force inside `step` only: parameter groups, state dicts and checkpoints hold the user's own
flags. Fused kernels walk raw memory, so if gradients or state have another layout than their parameter, the step is
made by the user's own implementation.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from autotune.knobs.change import Change, Refused, Training
from autotune.knobs.knob import ROUNDING, Choices, Context, Knob, Word

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer

OPTIMIZER_GAIN = {"default": 0.0, "foreach": 0.01, "fused": 0.05}
OPTIMIZER_IMPLS = tuple(OPTIMIZER_GAIN)
CHECK = "_need_device_dtype_check_for_fused"
"""Attribute that PyTorch sets in a fused step."""
FLAGS = OPTIMIZER_IMPLS[1:]


def _optimizer_impl(context: Context) -> Choices:
    offered = context.task.optimizer_impls
    reason = f"{context.task.optimizer} does not accept it on {context.task.device}"
    return {impl: None if impl in offered else reason for impl in OPTIMIZER_IMPLS}


def parameters_of(*optimizers: Optimizer) -> list[Tensor]:
    """Return all parameters that ``optimizers`` hold, in the order of their groups."""
    return [p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]


class _Switched(Change):
    """An optimizer whose steps run as ``name`` if that computes the same."""

    def __init__(self, optimizer: Optimizer, name: str) -> None:
        self._optimizer, self._name = optimizer, name
        self._asked: list[Any] = []
        self._why_not: str | None = None
        self._own: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._leaves_check = CHECK not in vars(optimizer)
        self._before = optimizer.register_step_pre_hook(self._begin)
        self._after = optimizer.register_step_post_hook(lambda *_: self._put_back())
        after: Any = optimizer._optimizer_step_post_hooks
        after.move_to_end(self._after.id, last=False)  # the user's own hooks see the user's own flags

    def why_not(self) -> str | None:
        """Return why steps are made by the user's own implementation, or None."""
        return self._why_not

    def undo(self) -> None:
        """Leave the optimizer as it was."""
        self._put_back()
        self._before.remove()
        self._after.remove()
        if self._leaves_check:
            vars(self._optimizer).pop(CHECK, None)

    def _begin(self, optimizer: Optimizer, arguments: Any, options: Any) -> None:
        self._put_back()  # the last step may have ended by an exception
        closure = len(arguments) > 1 or options  # makes its gradients inside the step
        scaled = getattr(optimizer, "grad_scale", None) is not None or getattr(optimizer, "found_inf", None) is not None
        last = next(reversed(optimizer._optimizer_step_pre_hooks))  # a later hook than ours may change gradients
        if closure or scaled or last != self._before.id or not self._serves():
            return
        for group in optimizer.param_groups:
            held = {flag: group[flag] for flag in FLAGS if flag in group}
            self._own.append((group, held))
            group.update({flag: flag == self._name for flag in held})

    def _put_back(self) -> None:
        while self._own:
            group, flags = self._own.pop()
            group.update(flags)

    def _serves(self) -> bool:
        """Return True if the implementation takes this step's parameters, gradients and state as they are."""
        groups = self._optimizer.param_groups
        asked = [(len(g["params"]), type(g["lr"]), g.get("capturable"), g.get("differentiable")) for g in groups]
        if asked != self._asked:  # a group or a learning rate of another kind came later
            self._asked, self._why_not = asked, why_unsupported(self._optimizer, self._name)
        if self._why_not is not None or self._name != "fused":
            return self._why_not is None
        if all(_is_laid_out(group["params"]) for group in groups) and self._state_serves():
            return True
        self._why_not = "gradients or state are sparse, laid out otherwise or partial"
        self._asked = []  # ask again in the next step
        return False

    def _state_serves(self) -> bool:
        """Return True if state has the layout of its parameters. Step counters move to them: fused kernels need it."""
        state = self._optimizer.state
        buffers = set()
        for group in self._optimizer.param_groups:
            for parameter in group["params"]:
                own: Any = state.get(parameter)
                if parameter.grad is not None:
                    buffers.add((id(group), own is None or own.get("momentum_buffer") is None))
                for name, value in (own or {}).items():
                    if name == "step" and getattr(value, "device", parameter.device) != parameter.device:
                        own[name] = value.to(parameter.device)
                    elif getattr(value, "shape", None) == parameter.shape and value.stride() != parameter.stride():
                        return False
        # PyTorch's fused SGD takes momentum buffers for all parameters of a group or for none.
        names = {kind.__name__ for kind in type(self._optimizer).__mro__}
        return "SGD" not in names or len(buffers) == len({group for group, _absent in buffers})


def _is_laid_out(parameters: list[Tensor]) -> bool:
    """Return True if gradients are dense and have the layout of their parameters."""
    import torch

    try:  # the usual case, in few calls: this runs in every step
        contiguous = torch.Tensor.is_contiguous
        gradients: list[Any] = [parameter.grad for parameter in parameters]
        if all(map(contiguous, gradients)) and all(map(contiguous, parameters)):
            return True
    except (TypeError, RuntimeError):  # a gradient is absent or sparse
        pass
    pairs = [(p, p.grad) for p in parameters if p.grad is not None]
    return all(g.layout is torch.strided and g.stride() == p.stride() and _is_dense(p) for p, g in pairs)


def _is_dense(parameter: Tensor) -> bool:
    import torch

    forms = (torch.channels_last, torch.channels_last_3d)[: max(0, parameter.dim() - 3)]
    return parameter.is_contiguous() or any(parameter.is_contiguous(memory_format=form) for form in forms)


def why_unsupported(optimizer: Optimizer, implementation: str) -> str | None:
    """Return why ``optimizer`` cannot run as ``implementation``, or None. Its class is tried on scratch tensors."""
    import torch
    from torch.nn.parameter import is_lazy

    name, parameters = type(optimizer).__name__, parameters_of(optimizer)
    if not all(implementation in group for group in optimizer.param_groups):
        return f"{name} has no {implementation} implementation"
    if any(is_lazy(p) or not p.is_floating_point() for p in parameters):
        return f"{name} holds parameters that are lazy or not floating point"
    if implementation == "fused" and torch.get_default_dtype() is torch.float64:
        return "the optimizer's state would be float32 with fused, and is float64"
    if any(group.get("differentiable") for group in optimizer.param_groups):
        return f"differentiable=True rules out {implementation}"
    kinds = {(p.device, p.dtype) for p in parameters}
    scratch = [torch.zeros(1, device=device, dtype=dtype, requires_grad=True) for device, dtype in kinds]
    kind = next(c for c in type(optimizer).__mro__ if c.__module__.startswith("torch."))  # no code of the user's
    taken = inspect.signature(kind).parameters.keys() - {"params", *FLAGS}
    try:
        for group in optimizer.param_groups:
            options: dict[str, Any] = {key: group[key] for key in taken if key in group}
            kind(scratch, **options, **{implementation: True})
    except Exception as error:  # whatever it is, training goes on without
        return f"{name} refuses {implementation}=True: {error}"
    return None


def _on_optimizer(value: str, optimizer: Optimizer, _training: Training) -> Change | None:
    asked = [flag for flag in FLAGS if any(group.get(flag) for group in optimizer.param_groups)]
    if asked[-1:] == [value]:
        return None
    reason = why_unsupported(optimizer, value)
    return _Switched(optimizer, value) if reason is None else Refused(reason)


OPTIMIZER_IMPL = Knob(
    name="optimizer_impl",
    words="{} optimizer",
    kind=Word(OPTIMIZER_IMPLS),
    neutral="default",
    applied="optimizer",
    choices=_optimizer_impl,
    why={
        "fused": "one kernel updates all parameters",
        "foreach": "parameters are updated in groups",
        "default": "PyTorch's own choice is fastest here",
    },
    spread=0.10,
    gain=lambda settings, _context: OPTIMIZER_GAIN[settings.optimizer_impl],
    keeps=ROUNDING,
    on_optimizer=_on_optimizer,
    plain=lambda plan: f"your optimizer with {plan.settings.optimizer_impl}=True",
)
