"""How an optimizer that the user already built computes its update: ``foreach`` or ``fused``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


def apply(optimizer: Optimizer, implementation: str) -> str | None:
    """Switch ``optimizer`` to ``implementation`` in place. Returns why it keeps its own, or None.

    ``default`` leaves the optimizer as it was built.
    """
    if implementation == "default":
        return None
    reason = _unsupported(optimizer, implementation)
    if reason is not None:
        return reason
    flags = {"foreach": implementation == "foreach", "fused": implementation == "fused"}
    for group in (optimizer.defaults, *optimizer.param_groups):
        group.update({name: value for name, value in flags.items() if name in group})
    if implementation == "fused":
        # What the constructor does for fused=True: GradScaler then hands its scale to the kernel.
        optimizer._step_supports_amp_scaling = True  # type: ignore[attr-defined]
        optimizer._need_device_dtype_check_for_fused = True  # type: ignore[attr-defined]
    place_state(optimizer)
    return refused(optimizer, implementation)


def refused(optimizer: Optimizer, implementation: str) -> str | None:
    """Read back: why ``implementation`` is not in force in every parameter group, or None."""
    if implementation == "default":
        return None
    held = all(group.get(implementation) is True for group in optimizer.param_groups)
    return None if held else f"{type(optimizer).__name__} does not hold {implementation}=True"


def place_state(optimizer: Optimizer) -> None:
    """Move state that exists already (a resumed run) to where its parameters are and the implementation wants it.

    Step counters live on the parameter's device for fused and capturable optimizers, else on the CPU, where reading
    them costs nothing.
    """
    for group in optimizer.param_groups:
        on_device = bool(group.get("fused") or group.get("capturable"))
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            for name, value in state.items():
                if isinstance(value, Tensor):
                    away = name == "step" and not on_device
                    state[name] = value.to("cpu" if away else parameter.device)


def _unsupported(optimizer: Optimizer, implementation: str) -> str | None:
    """The class's own checks, asked on a scratch parameter of the same device and type."""
    name = type(optimizer).__name__
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if not all(implementation in group for group in optimizer.param_groups):
        return f"{name} has no {implementation} implementation"
    if not all(p.is_floating_point() for p in parameters):
        return f"{name} holds parameters that are not floating point"
    if any(group.get("differentiable") for group in optimizer.param_groups):
        return f"differentiable=True rules out {implementation}"
    scratch = [torch.zeros(1, device=p.device, dtype=p.dtype, requires_grad=True) for p in _one_of_each(parameters)]
    group = optimizer.param_groups[0]
    options: dict[str, Any] = {key: group[key] for key in ("lr", "capturable") if key in group}
    try:
        type(optimizer)(scratch, **options, **{implementation: True})  # type: ignore[arg-type]
    except (RuntimeError, TypeError, ValueError) as error:
        return f"{name} refuses {implementation}=True: {error}"
    return None


def _one_of_each(parameters: list[Tensor]) -> list[Tensor]:
    return list({(p.device, p.dtype): p for p in parameters}.values())
