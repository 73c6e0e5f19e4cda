"""Layers around the call of a tuned model, in the slot that PyTorch itself uses for `torch.nn.Module.compile`.

The model stays the user's own object: its class, names, state dict, hooks and methods. PyTorch leaves the slot out of
copies and pickles. Compilers never see a layer: what Dynamo, ``torch.jit``, ``torch.export`` or ``torch.fx`` trace is
the plain model. Copies of a model's dictionary, as `torch.nn.DataParallel` and MAML make them, hold the slot too: only
the caller's frame tells which of them is called (decision 013).
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from autotune.knobs.change import Change

Call = Callable[..., Any]
HALF = (torch.float16, torch.bfloat16)
SLOT = "_compiled_call_impl"
"""The attribute that `torch.nn.Module.__call__` looks at first."""


class Layered(Change):
    """A layer around a model's call.

    Args:
        model: the user's.
        layer: makes the new call from the present one.
    """

    def __init__(self, model: nn.Module, layer: Callable[[Call], Call]) -> None:
        self._model, self._before, self._over = model, vars(model).get(SLOT), False
        plain: Call = self._before or model._call_impl
        outer = layer(plain)

        # A function, since torch.jit.script passes over functions that it cannot read. Dynamo reads it, up to the "or".
        def call(*arguments: Any, **options: Any) -> Any:
            if torch.compiler.is_compiling() or torch._C._is_tracing():
                return model._call_impl(*arguments, **options)  # type: ignore[no-untyped-call]
            called = sys._getframe(1).f_locals.get("self")  # of torch.nn.Module.__call__
            if called is not model and isinstance(called, type(model)):  # a copy of its dictionary, as MAML makes it
                return called._call_impl(*arguments, **options)  # type: ignore[no-untyped-call]
            return (plain if self._over else outer)(*arguments, **options)

        call.layer = self  # type: ignore[attr-defined]
        vars(model)[SLOT] = call

    def undo(self) -> None:
        """Take the layer away: now, or with the layer around it. A call that other code has put there stays."""
        self._over, slot = True, vars(self._model)
        while isinstance(outermost := getattr(slot.get(SLOT), "layer", None), Layered) and outermost._over:
            slot[SLOT] = outermost._before
            if outermost._before is None:
                del slot[SLOT]


def compiled_by_user(model: nn.Module) -> bool:
    """Return True if the user compiles ``model``: it is left as it is. Layers of this module do not count."""
    call = vars(model).get(SLOT)
    by_user = call is not None and not hasattr(call, "layer")
    return by_user or hasattr(model, "_orig_mod") or isinstance(model, torch.jit.ScriptModule)


def attributes_to_float32(model: nn.Module) -> list[str]:
    """Convert tensors in half precision that modules of ``model`` keep beside parameters and buffers.

    Returns their names.
    """
    names = []
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            if isinstance(value, Tensor) and value.dtype in HALF:
                vars(module)[key] = value.float()
                names.append(f"{name}.{key}".lstrip("."))
    return names


def to_float32(value: Any) -> Any:
    """Return ``value`` with every half-precision tensor in it as float32; the same object if it holds none.

    Containers and objects that hold one are copied; they keep their class and all else.
    """
    if isinstance(value, Tensor):
        return value.float() if value.dtype in HALF else value
    if isinstance(value, tuple):
        items = [to_float32(item) for item in value]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        named = type(value).__module__ != "torch.return_types"  # those are C types that take one sequence
        return tuple.__new__(type(value), items) if named else type(value)(items)
    held = _items(value)
    changed = {key: new for key, old in held.items() if (new := to_float32(old)) is not old}
    if not changed:
        return value
    twin = copy.copy(value)
    try:
        for key, item in changed.items():
            if isinstance(value, list | Mapping):
                twin[key] = item
            else:
                object.__setattr__(twin, key, item)
    except TypeError:  # a mapping that cannot be written to
        return value
    return twin


def _items(value: Any) -> Mapping[Any, Any]:
    """Return what a container or an object holds, by key, place or name."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, list):
        return dict(enumerate(value))
    return vars(value) if hasattr(value, "__dict__") and not callable(value) else {}
