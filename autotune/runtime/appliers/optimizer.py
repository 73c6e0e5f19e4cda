"""How an optimizer that the user already built computes its update: ``foreach`` or ``fused``.

The implementation is in force inside `step` only: parameter groups, state dicts, copies and checkpoints hold the user's
own flags. Fused kernels walk raw memory, so that gradients or state of another layout than their parameter's would be
scrambled silently: state is laid out like its parameter, and a step whose gradients are not is the user's own.
"""

from __future__ import annotations

import inspect
from collections.abc import MutableMapping
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from autotune.runtime.applier import Applier, Training

FLAGS = ("foreach", "fused")
FORMATS = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d)
_gradient_of = attrgetter("grad")
_is_contiguous = Tensor.is_contiguous


def parameters_of(*optimizers: Optimizer) -> list[Tensor]:
    """All parameters that ``optimizers`` hold, in the order of their groups."""
    return [p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]


class OptimizerImpl(Applier):
    """The implementation of every optimizer's step."""

    def __init__(self, value: str, training: Training) -> None:
        super().__init__(value, training)
        self._implementations: list[Implementation] = []

    def optimizer(self, optimizer: Optimizer) -> str | None:
        """Let it step with the tuned implementation."""
        implementation = Implementation(optimizer, self.value)
        self._implementations.append(implementation)
        return implementation.why_not

    def place_state(self) -> None:
        """Lay out all state like its parameters."""
        for implementation in self._implementations:
            implementation.place_state()

    def why_not(self) -> str | None:
        """Why an optimizer steps with its own implementation, or None."""
        return next(filter(None, (each.why_not or each.why_left_alone for each in self._implementations)), None)

    def undo(self) -> None:
        """Leave the optimizers as they were."""
        while self._implementations:
            self._implementations.pop().close()


class Implementation:
    """An optimizer whose steps run as ``name`` wherever that computes the same.

    Attributes:
        why_not: why ``name`` is not in force, or None; a step may change it.
        why_left_alone: why some steps were the optimizer's own, or None.
    """

    def __init__(self, optimizer: Optimizer, name: str) -> None:
        self.optimizer = optimizer
        self.why_not = why_unsupported(optimizer, name)
        fused = any(group.get("fused") for group in optimizer.param_groups)
        self.name = "fused" if name == "default" and fused else name
        self.why_left_alone: str | None = None
        self._asked: list[Any] = []
        self._contiguous = False
        self._own: list[tuple[dict[str, Any], dict[str, Any]]] = []
        hooks = [
            optimizer.register_state_dict_post_hook(_portable),
            optimizer.register_load_state_dict_post_hook(lambda _optimizer: self.place_state()),
        ]
        if self.name != "default" and self.why_not is None:
            hooks += [optimizer.register_step_pre_hook(self._begin), optimizer.register_step_post_hook(self._end)]
        self._hooks = hooks
        self.place_state()

    def close(self) -> None:
        """Leave the optimizer as it was."""
        self._put_back()
        for hook in self._hooks:
            hook.remove()

    def place_state(self) -> None:
        """Lay state that exists already (a resumed run) out like its parameters, and move it to them.

        Step counters live on the parameter's device for fused and capturable optimizers, else on the CPU, where
        reading them costs nothing.
        """
        fused = self.name == "fused" and self.why_not is None
        for group in self.optimizer.param_groups:
            on_device = fused or bool(group.get("fused") or group.get("capturable"))
            for parameter in group["params"]:
                state = self.optimizer.state.get(parameter)
                if isinstance(state, MutableMapping):  # else of a user's class, which knows its own state
                    _place(state, parameter, on_device)

    def _begin(self, optimizer: Optimizer, arguments: Any, options: Any) -> None:
        self._put_back()  # the last step may have ended by an exception
        if getattr(optimizer, "grad_scale", None) is not None or getattr(optimizer, "found_inf", None) is not None:
            return  # a gradient scaler has left its work to the user's own fused kernel
        closure = len(arguments) > 1 or options  # makes its gradients inside the step
        serves = not closure and self._serves()
        for group in self.optimizer.param_groups:
            if serves:
                self._switch(group, self.name)
            elif group.get("fused"):  # the user's own flag
                self._switch(group, "default")

    def _switch(self, group: dict[str, Any], name: str) -> None:
        held = [flag for flag in FLAGS if flag in group]
        self._own.append((group, {flag: group[flag] for flag in held}))
        group.update({flag: flag == name for flag in held})

    def _end(self, _optimizer: Optimizer, _arguments: Any, _options: Any) -> None:
        self._put_back()

    def _put_back(self) -> None:
        while self._own:
            group, flags = self._own.pop()
            group.update(flags)

    def _serves(self) -> bool:
        """True where the implementation takes this step's parameters, gradients and state as they are."""
        groups = self.optimizer.param_groups
        asked = [(len(g["params"]), type(g["lr"]), g.get("capturable"), g.get("differentiable")) for g in groups]
        if asked != self._asked:  # a group or a learning rate of another kind came later
            self._asked, self.why_not = asked, why_unsupported(self.optimizer, self.name)
            self.place_state()
        if self.why_not is not None:
            return False
        if self.name == "foreach":
            return True
        contiguous = all(_all_contiguous(group["params"]) for group in groups)
        if not (contiguous and self._contiguous):  # the user may have changed a model's layout since the last step
            self.place_state()
        self._contiguous = contiguous
        alike = contiguous or all(_same_layout(group["params"]) for group in groups)
        if alike and not self._half_begun():
            return True
        self.why_left_alone = (
            "a step was the optimizer's own: its gradients or state are sparse, laid out otherwise or partial"
        )
        return False

    def _half_begun(self) -> bool:
        """PyTorch's fused SGD takes momentum buffers for all parameters or none; some may train only now."""
        if "SGD" not in {kind.__name__ for kind in type(self.optimizer).__mro__}:
            return False
        state = self.optimizer.state
        return any(
            len({state.get(p, {}).get("momentum_buffer") is None for p in group["params"] if p.grad is not None}) > 1
            for group in self.optimizer.param_groups
            if group.get("momentum")
        )


def _all_contiguous(parameters: list[Tensor]) -> bool:
    """The usual case, told in few calls: this runs in every step."""
    try:
        return all(map(_is_contiguous, map(_gradient_of, parameters))) and all(map(_is_contiguous, parameters))
    except (TypeError, RuntimeError):  # a gradient is absent or sparse
        return False


def _same_layout(parameters: list[Tensor]) -> bool:
    gradients = map(_gradient_of, parameters)
    return all(
        gradient is None or (gradient.layout is torch.strided and _alike(gradient, parameter))
        for parameter, gradient in zip(parameters, gradients, strict=True)
    )


def _alike(value: Tensor, parameter: Tensor) -> bool:
    if value.stride() != parameter.stride():
        return False
    return any(parameter.is_contiguous(memory_format=form) for form in FORMATS[: max(1, parameter.dim() - 2)])


def _place(state: MutableMapping[str, Any], parameter: Tensor, on_device: bool) -> None:
    for name, value in state.items():
        if isinstance(value, Tensor):
            state[name] = _placed(value, parameter, away=name == "step" and not on_device)


def _placed(value: Tensor, parameter: Tensor, *, away: bool) -> Tensor:
    value = value.to("cpu" if away else parameter.device)
    if value.shape != parameter.shape or value.layout is not torch.strided or value.stride() == parameter.stride():
        return value
    return torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def _portable(optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
    """Checkpoints as plain PyTorch writes them: contiguous, with the step counters where the user's flags want them."""
    wanted: dict[int, bool] = {}
    for group in state_dict["param_groups"]:
        wanted |= dict.fromkeys(group["params"], bool(group.get("fused") or group.get("capturable")))
    states = {
        key: {name: _plain(value, name == "step" and not wanted.get(key, True)) for name, value in state.items()}
        if isinstance(state, dict)
        else _plain(state, False)
        for key, state in state_dict["state"].items()
    }
    return state_dict | {"state": states}


def _plain(value: Any, counter: bool) -> Any:
    if not isinstance(value, Tensor) or value.layout is not torch.strided:
        return value
    return value.cpu() if counter else value.contiguous()


def why_unsupported(optimizer: Optimizer, implementation: str) -> str | None:
    """Why ``optimizer`` cannot run as ``implementation``: the class's own checks, asked on scratch parameters."""
    if implementation == "default":
        return None
    name = type(optimizer).__name__
    parameters = parameters_of(optimizer)
    if not all(implementation in group for group in optimizer.param_groups):
        return f"{name} has no {implementation} implementation"
    if not all(p.is_floating_point() for p in parameters):
        return f"{name} holds parameters that are not floating point"
    if any(group.get("differentiable") for group in optimizer.param_groups):
        return f"differentiable=True rules out {implementation}"
    scratch = [torch.zeros(1, device=p.device, dtype=p.dtype, requires_grad=True) for p in _one_of_each(parameters)]
    kind = next(c for c in type(optimizer).__mro__ if c.__module__.startswith("torch."))  # no code of the user's
    taken = inspect.signature(kind).parameters.keys() - {"params", *FLAGS}
    try:
        for group in optimizer.param_groups:
            options: dict[str, Any] = {key: group[key] for key in taken if key in group}
            kind(scratch, **options, **{implementation: True})
    except Exception as error:  # whatever it is, training goes on without
        return f"{name} refuses {implementation}=True: {error}"
    return None


def _one_of_each(parameters: list[Tensor]) -> list[Tensor]:
    return list({(p.device, p.dtype): p for p in parameters}.values())
