"""The implementation of an optimizer that the user has built: ``foreach`` or ``fused``.

Its flags in the parameter groups are set once, and put back by `close`. State dicts hold the user's own flags, and step
counters where these keep them. Fused kernels walk raw memory: if gradients or state have another layout than their
parameter, the user's own implementation goes on.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable
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
    """An optimizer that runs as ``name`` as long as that computes the same."""

    def __init__(self, optimizer: Optimizer, name: str) -> None:
        self._optimizer, self._name = optimizer, name
        self._why_not: str | None = None
        """Why steps are made by the user's own implementation, or None."""
        super().__init__(read=lambda: self._why_not)
        self._own: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._leaves_check = CHECK not in vars(optimizer)
        self._hooks = [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_state_dict_post_hook(self._saved, prepend=True),
            optimizer.register_load_state_dict_post_hook(self._switch, prepend=True),
        ]
        vars(optimizer)["__getstate__"] = self._copied
        self._switch()

    def undo(self) -> None:
        """Leave the optimizer as it was."""
        self._put_back()
        for hook in self._hooks:
            hook.remove()
        vars(self._optimizer).pop("__getstate__", None)
        if self._leaves_check:
            vars(self._optimizer).pop(CHECK, None)

    def _switch(self, *_: object) -> None:
        """Set the flags of all groups; what they have now is the user's own, also after a checkpoint was loaded."""
        if self._why_not is not None:
            return
        groups = self._optimizer.param_groups
        self._own = [(group, {flag: group[flag] for flag in FLAGS if flag in group}) for group in groups]
        self._rates, self._is_known = [type(group["lr"]) for group in groups], False
        for group, own in self._own:
            group.update({flag: flag == self._name for flag in own})
            for parameter in group["params"] * (self._name == "fused"):
                _count_on(parameter.device, self._optimizer.state.get(parameter))

    def _put_back(self) -> None:
        while self._own:
            group, own = self._own.pop()
            group.update(own)
            for parameter in group["params"] * _counts_on_host(group):
                _count_on("cpu", self._optimizer.state.get(parameter))

    def _saved(self, _optimizer: Optimizer, saved: dict[str, Any]) -> None:
        """Put the user's own flags into a state dict, and step counters where these keep them."""
        for group, (_group, own) in zip(saved["param_groups"], self._own, strict=False):
            group.update(own)
            for number in group["params"] * _counts_on_host(group):
                if number in saved["state"]:
                    saved["state"][number] = dict(saved["state"][number])
                    _count_on("cpu", saved["state"][number])

    def _copied(self) -> dict[str, Any]:
        """Return what a copy of the optimizer is made of."""
        own: Any = self._optimizer
        saved = dict(type(own).__getstate__(own))
        groups = [dict(group) for group in own.param_groups]
        saved |= {"param_groups": groups, "state": copy.copy(own.state)}
        self._saved(own, saved)
        return saved

    def _before_step(self, _optimizer: Optimizer, arguments: Any, options: Any) -> None:
        if self._own:
            closure = len(arguments) > 1 or options
            self._why_not = "a closure makes gradients inside the step" if closure else self._why_stop()
            if self._why_not is not None:
                self._put_back()

    def _why_stop(self) -> str | None:
        """Return why the implementation does not take this step's parameters, gradients and state, or None."""
        groups, state = [group for group, _own in self._own], self._optimizer.state
        if [type(group["lr"]) for group in groups] != self._rates:
            return "the learning rate has become of another type"
        if self._name != "fused":
            return None
        for group in groups:
            parameters = group["params"]
            usual = self._is_known and _are_contiguous(parameters)
            if not usual and not all(_matches(p, (p.grad, *state.get(p, {}).values())) for p in parameters):
                return "gradients or state are sparse, or laid out unlike their parameters"
            if group.get("momentum"):  # fused SGD takes momentum buffers for all parameters or for none
                begun = {state.get(p, {}).get("momentum_buffer") is not None for p in parameters if p.grad is not None}
                if len(begun) > 1:
                    return "some parameters have no momentum yet"
        self._is_known = True
        return None


def _counts_on_host(group: dict[str, Any]) -> bool:
    """Return True if step counters are on the CPU with the flags of ``group``."""
    return not (group.get("fused") or group.get("capturable"))


def _count_on(device: Any, state: Any) -> None:
    """Move the step counter in the ``state`` of a parameter."""
    if hasattr((state or {}).get("step"), "to"):
        state["step"] = state["step"].to(device)


def _are_contiguous(parameters: list[Tensor]) -> bool:
    """Return True in the usual case, in few calls: this runs in every step."""
    import torch

    contiguous = torch.Tensor.is_contiguous
    try:
        return all(map(contiguous, parameters)) and all(contiguous(p.grad) for p in parameters)  # type: ignore[arg-type]
    except (TypeError, RuntimeError):  # a gradient is absent or sparse
        return False


def _matches(parameter: Tensor, others: Iterable[Any]) -> bool:
    """Return True if its gradient and state, ``others``, are dense and have the layout of ``parameter``."""
    import torch

    forms = (torch.contiguous_format, *(torch.channels_last, torch.channels_last_3d)[: max(0, parameter.dim() - 3)])
    tensors = [other for other in others if getattr(other, "shape", None) == parameter.shape]
    if any(tensor.layout is not torch.strided for tensor in tensors):
        return False
    return not tensors or any(all(t.is_contiguous(memory_format=form) for t in (parameter, *tensors)) for form in forms)


def why_unsupported(optimizer: Optimizer, implementation: str) -> str | None:
    """Return why ``optimizer`` cannot run as ``implementation``, or None. Its class is tried on scratch tensors."""
    import torch
    from torch.nn.parameter import is_lazy

    kind, parameters = type(optimizer), parameters_of(optimizer)
    name = kind.__name__
    if not kind.__module__.startswith("torch.optim."):
        return f"{name} is not an optimizer of PyTorch's own: its step may read the flags"
    if not all(implementation in group for group in optimizer.param_groups):
        return f"{name} has no {implementation} implementation"
    if any(is_lazy(p) or not p.is_floating_point() for p in parameters):
        return f"{name} holds parameters that are lazy or not floating point"
    if implementation == "fused" and torch.get_default_dtype() is torch.float64:
        return "the optimizer's state would be float32 with fused, and is float64"
    if implementation != "fused" and any(group.get("fused") for group in optimizer.param_groups):
        return "it was built with fused=True, on which a gradient scaler may rely"
    if any(group.get("differentiable") for group in optimizer.param_groups):
        return f"differentiable=True rules out {implementation}"
    places = {(p.device, p.dtype) for p in parameters}
    taken = inspect.signature(kind).parameters.keys() - {"params", *FLAGS}
    try:
        scratch: Any = [torch.zeros(1, device=device, dtype=dtype, requires_grad=True) for device, dtype in places]
        for group in optimizer.param_groups:
            options: dict[str, Any] = {key: group[key] for key in taken if key in group}
            kind(scratch, **{**options, implementation: True})
    except Exception as error:  # whatever it is, training goes on without
        return f"{name} refuses {implementation}=True: {error}"
    return None


def offered_impls(optimizer: Optimizer) -> tuple[str, ...]:
    """Return the implementations that ``optimizer`` can run as."""
    return tuple(each for each in OPTIMIZER_IMPLS if each == "default" or why_unsupported(optimizer, each) is None)


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
