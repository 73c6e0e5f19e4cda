"""torch.compile, in place: the module, its names and its state dict stay the user's own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

BACKEND = "inductor"


def apply(model: nn.Module, mode: str, say: Callable[[str, str], None]) -> None:
    """Compile ``model`` in place with ``mode``; where the compiler fails, go on uncompiled and ``say(knob, why)``."""
    if model._compiled_call_impl is not None:
        return  # the user has compiled it
    options: dict[str, Any] = {"mode": mode} if BACKEND == "inductor" else {"backend": BACKEND}

    # What model.compile() does, but from a function of this file: Dynamo starts no graph in PyTorch's own files, and
    # would leave a model that is an nn.Sequential as it is.
    def call(*arguments: Any, **keywords: Any) -> Any:
        return model._call_impl(*arguments, **keywords)  # type: ignore[no-untyped-call]

    try:
        compiled = torch.compile(call, **options)
    except Exception as error:  # an interpreter or platform that torch.compile refuses
        say("compile", _line(error))
        return
    model._compiled_call_impl = _Guarded(model, compiled, say)


def refused(model: nn.Module) -> str | None:
    """Read back, after at least one forward: why no graph ran, or None."""
    if not isinstance(model._compiled_call_impl, _Guarded) or not model._compiled_call_impl.called:
        return None
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    graphs = counters.get("stats", {}).get("unique_graphs", 0)
    return None if graphs else "no graph was compiled; the model ran as before"


class _Guarded:
    """A compiled call that falls back to the plain one when the compiler, not the model, fails."""

    def __init__(self, model: nn.Module, call: Callable[..., Any], say: Callable[[str, str], None]) -> None:
        self.model, self.call, self.say = model, call, say
        self.called = False

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.called = True
        try:
            return self.call(*arguments, **options)
        except Exception as error:
            if not isinstance(error, _compiler_errors()):
                raise
            self.say("compile", _line(error))
        self.model._compiled_call_impl = None
        return self.model._call_impl(*arguments, **options)  # type: ignore[no-untyped-call]

    def __reduce__(self) -> tuple[Any, ...]:
        """A copied or pickled model starts uncompiled: the graphs belong to the original's parameters."""
        return type(None), ()


def _compiler_errors() -> tuple[type[BaseException], ...]:
    return (torch._dynamo.exc.TorchDynamoException,) if "torch._dynamo.exc" in sys.modules else ()


def _line(error: BaseException) -> str:
    """The first lines of ``error``: the outer one only says that some backend raised."""
    text = " ".join(str(error).split("\n\n")[0].split())
    return f"{type(error).__name__}: {text[:200]}"
