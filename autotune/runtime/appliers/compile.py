"""torch.compile of a model's call: the module, its names and its state dict stay the user's own."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from autotune.core.knobs.compile import CACHE_VARIABLE
from autotune.runtime.applier import Applier, Training
from autotune.runtime.appliers import compiler
from autotune.runtime.calls import Call, Layer, current, with_tensors

BACKEND = "inductor"
CUDA_GRAPHS = ("reduce-overhead", "max-autotune")
"""Modes that replay CUDA graphs, whose memory the next step takes again."""
SETTLED = 3
"""Calls after which a model has no reason to be compiled again."""
OTHER_SHAPES = 0.25
"""Largest share of calls with other shapes than the first: a last batch is often smaller."""


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
        graphs = self.training.device.type == "cuda" and self.value in CUDA_GRAPHS
        compiled = compiled_call(model, self.value, self.training.notes.not_applied, graphs=graphs)
        if isinstance(compiled, Compiled):
            self._layers.append(compiled)
        return compiled

    def why_not(self) -> str | None:
        """Why a model ran as before, or None."""
        return next(filter(None, (layer.why_not() for layer in self._layers)), None)


def import_compiler(folder: str) -> None:
    """Import TorchInductor so that it keeps precompiled C++ headers in ``folder``.

    They go to the temporary folder of the moment, which differs by trial: 150 MB and ten seconds each time.
    """
    before, tempfile.tempdir = tempfile.tempdir, folder
    try:
        os.makedirs(folder, exist_ok=True)
        importlib.import_module("torch._inductor.codecache")
    except (ImportError, OSError):
        return  # compiling itself tells what is wrong
    finally:
        tempfile.tempdir = before


def compiled_call(model: nn.Module, mode: str, say: Callable[[str, str], None], *, graphs: bool = False) -> Call:
    """``model``'s call, compiled with ``mode``; where the compiler fails, the plain call, and ``say(knob, why)``.

    Args:
        model: the user's.
        mode: of `torch.compile`.
        say: takes the knob and the reason.
        graphs: whether CUDA graphs are replayed.
    """
    plain = current(model)
    if plain != model._call_impl:
        return plain  # the user has compiled it
    try:
        return Compiled(model, mode, say, graphs=graphs)
    except Exception as error:  # an interpreter or platform that torch.compile refuses
        say("compile", compiler.words(error))
        return plain


class Compiled(Layer):
    """A call that is compiled for training steps of one shape, so that training never waits for the compiler again.

    Other shapes, such as a smaller last batch, and calls without gradients run as they are. Where the compiler, not the
    model, fails, it is tried once more with an empty cache; then the plain call takes over.
    """

    def __init__(self, model: nn.Module, mode: str, say: Callable[[str, str], None], *, graphs: bool) -> None:
        self.model, self.mode, self.say, self.graphs = model, mode, say, graphs
        self.plain = current(model)
        self.call = self._compiled()
        self.calls, self.others, self.recompiles = 0, 0, 0
        self._shapes: tuple[tuple[int, ...], ...] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def _compiled(self) -> Call:
        if BACKEND == "inductor" and CACHE_VARIABLE in os.environ:
            import_compiler(os.environ[CACHE_VARIABLE])  # before torch.compile does
        options: dict[str, Any] = {"mode": self.mode} if BACKEND == "inductor" else {"backend": BACKEND}
        model = self.model

        # What model.compile() does, but from a function of this file: Dynamo starts no graph in PyTorch's own files,
        # and would leave a model that is an nn.Sequential as it is.
        def call(*arguments: Any, **keywords: Any) -> Any:
            return model._call_impl(*arguments, **keywords)  # type: ignore[no-untyped-call]

        return torch.compile(call, **options)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """The model's outputs."""
        if self.call is self.plain or not self._serves(arguments, options):
            return self.plain(*arguments, **options)
        if self.graphs:
            keep_gradients(self.model)
        graphs = compiler.graphs()
        try:
            outputs = self.call(*arguments, **options)
        except Exception as error:
            if not isinstance(error, compiler.errors()):
                raise
            self._failed(error)
            return self(*arguments, **options)
        self.calls += 1
        self.recompiles += compiler.graphs() - graphs if self.calls > SETTLED else 0
        return with_tensors(outputs, torch.Tensor.clone) if self.graphs else outputs

    def _serves(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
        """Whether the compiled call is for this one: a training step of the first one's shapes."""
        if not torch.is_grad_enabled():
            return False
        shapes = tuple(tensor_shapes((*arguments, *options.values())))
        if self._shapes is None:
            self._shapes = shapes
        self.others += shapes != self._shapes
        return shapes == self._shapes

    def _failed(self, error: Exception) -> None:
        """Try once more, with an empty cache: what another process has left half written is not met again."""
        if self._folder is not None:
            self.say("compile", compiler.words(error))
            self.call = self.plain
            return
        compiler.drop_headers(os.environ.get(CACHE_VARIABLE, ""))
        self._folder = tempfile.TemporaryDirectory(prefix="autotune-compile-", ignore_cleanup_errors=True)
        os.environ[CACHE_VARIABLE] = self._folder.name
        compiler.forget()
        self.call = self._compiled()

    def why_not(self) -> str | None:
        """Read back, after at least one forward: why training does not run compiled, or None."""
        if self.call is self.plain or not self.calls + self.others:
            return None
        if not compiler.graphs():
            return "no graph was compiled; the model ran as before"
        if self.others > OTHER_SHAPES * (self.calls + self.others):
            return (
                f"{self.others} of {self.calls + self.others} calls had other shapes than the first and ran as before"
            )
        if self.recompiles:
            return f"the model was compiled again {self.recompiles} times, for something that changes with the steps"
        return None


def keep_gradients(model: nn.Module) -> None:
    """Gradients that a CUDA graph has made move out of its memory, which the coming forward pass takes again."""
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad = parameter.grad.clone()


def tensor_shapes(values: Any) -> Iterator[tuple[int, ...]]:
    """Shapes of all tensors in nested ``values``."""
    for value in values.values() if isinstance(values, dict) else values:
        if isinstance(value, torch.Tensor):
            yield tuple(value.shape)
        elif isinstance(value, dict | list | tuple):
            yield from tensor_shapes(value)
