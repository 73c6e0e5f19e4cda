"""torch.compile of a model's call: the module, its names and its state dict stay the user's own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from autotune.runtime.applier import Applier, Training
from autotune.runtime.calls import Call, Layer, current

BACKEND = "inductor"


class Compile(Applier):
    """Compiles what calling a model runs."""

    depth = 10

    def __init__(self, value: str, training: Training) -> None:
        super().__init__(value, training)
        self._layers: list[Compiled] = []

    def around(self, model: nn.Module, call: Call) -> Call:
        """The compiled call."""
        if self.value == "off":
            return call
        compiled = compiled_call(model, self.value, self.training.notes.not_applied)
        if isinstance(compiled, Compiled):
            self._layers.append(compiled)
        return compiled

    def why_not(self) -> str | None:
        """Why a model ran as before, or None."""
        return next(filter(None, (layer.why_not() for layer in self._layers)), None)


def compiled_call(model: nn.Module, mode: str, say: Callable[[str, str], None]) -> Call:
    """``model``'s call, compiled with ``mode``; where the compiler fails, the plain call, and ``say(knob, why)``."""
    plain = current(model)
    if plain != model._call_impl:
        return plain  # the user has compiled it
    options: dict[str, Any] = {"mode": mode} if BACKEND == "inductor" else {"backend": BACKEND}

    # What model.compile() does, but from a function of this file: Dynamo starts no graph in PyTorch's own files, and
    # would leave a model that is an nn.Sequential as it is.
    def call(*arguments: Any, **keywords: Any) -> Any:
        return model._call_impl(*arguments, **keywords)  # type: ignore[no-untyped-call]

    try:
        compiled = torch.compile(call, **options)
    except Exception as error:  # an interpreter or platform that torch.compile refuses
        say("compile", _line(error))
        return plain
    return Compiled(plain, compiled, say)


class Compiled(Layer):
    """A compiled call that falls back to the plain one when the compiler, not the model, fails."""

    def __init__(self, plain: Call, compiled: Call, say: Callable[[str, str], None]) -> None:
        self.plain, self.call, self.say = plain, compiled, say
        self.called = False

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """The model's outputs."""
        self.called = True
        try:
            return self.call(*arguments, **options)
        except Exception as error:
            if not isinstance(error, _compiler_errors()):
                raise
            self.say("compile", _line(error))
        self.call = self.plain
        return self.plain(*arguments, **options)

    def why_not(self) -> str | None:
        """Read back, after at least one forward: why no graph ran, or None."""
        if not self.called or self.call is self.plain:
            return None
        counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
        graphs = counters.get("stats", {}).get("unique_graphs", 0)
        return None if graphs else "no graph was compiled; the model ran as before"


def _compiler_errors() -> tuple[type[BaseException], ...]:
    return (torch._dynamo.exc.TorchDynamoException,) if "torch._dynamo.exc" in sys.modules else ()


def _line(error: BaseException) -> str:
    """The first lines of ``error``: the outer one only says that some backend raised."""
    text = " ".join(str(error).split("\n\n")[0].split())
    return f"{type(error).__name__}: {text[:200]}"
