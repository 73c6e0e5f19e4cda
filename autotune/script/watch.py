"""What a running script trains with, seen from outside: its loaders, models, optimizers and backward passes.

Nothing is patched on import. `Watch.install` does it, in trials and under ``autotune run`` only, and the script sees
the same signatures and classes as before.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader

from autotune.runtime.appliers.optimizer import parameters_of
from autotune.script.shared_batch import SharedBatch

Begin = Callable[[], Iterator[Any]]


class Watcher:
    """Is told what the script does. The base lets everything pass."""

    def iterates(self, loader: DataLoader[Any], begin: Begin) -> Iterator[Any]:
        """The script begins to iterate ``loader``: what it gets, by default what ``begin`` gives."""
        return begin()

    def calls(self, model: nn.Module) -> None:
        """The script is about to call ``model``, which is no part of another one that is being called."""

    def goes_backward(self, loss: Tensor) -> None:
        """A backward pass from ``loss`` begins."""

    def steps(self, optimizer: Optimizer) -> None:
        """``optimizer`` has made a step."""


class Watch:
    """Hooks into PyTorch that tell a `Watcher`.

    Attributes:
        watcher: is told. It may be replaced at any time.
        optimizers: those that the script has built, and still holds, oldest first.
        threads: that it has asked PyTorch for; None where it has not.
        interop_threads: likewise.
        shared_batch: what the loaders of one of several processes get; None for one process.
    """

    def __init__(self, watcher: Watcher | None = None) -> None:
        self.watcher = watcher or Watcher()
        self.shared_batch: SharedBatch | None = None
        self.threads: int | None = None
        self.interop_threads: int | None = None
        self._optimizers: list[weakref.ref[Optimizer]] = []
        self._undo: list[Callable[[], object]] = []
        self._undo_calls: Callable[[], None] | None = None
        self._busy = 0

    @property
    def optimizers(self) -> list[Optimizer]:
        found = (reference() for reference in self._optimizers)
        return [optimizer for optimizer in found if optimizer is not None]

    def install(self, *, losses: bool = True) -> None:
        """Begin to watch; ``losses`` tells of backward passes, too."""
        self._replace(DataLoader, "__iter__", self._iterating)
        if self.shared_batch is not None:
            self._replace(DataLoader, "__init__", self.shared_batch.building)
        self._replace(Optimizer, "__init__", self._building)
        if losses:
            self._replace(torch.autograd, "backward", self._going_backward)
        self._replace(torch, "set_num_threads", self._setting("threads"))
        self._replace(torch, "set_num_interop_threads", self._setting("interop_threads"))
        self._undo.append(register_optimizer_step_post_hook(self._stepped).remove)
        self.watch_calls()

    def remove(self) -> None:
        """Put everything back."""
        self.ignore_calls()
        while self._undo:
            self._undo.pop()()

    def watch_calls(self) -> None:
        """Tell of calls of models, too. Each call of any module takes longer meanwhile."""
        if self._undo_calls is None:
            self._replace(nn.Module, "__call__", self._calling)
            self._undo_calls = self._undo.pop()  # type: ignore[assignment]

    def ignore_calls(self) -> None:
        """Tell no more of calls of models."""
        if self._undo_calls is not None:
            self._undo_calls()
            self._undo_calls = None

    def unwatched(self, begin: Callable[[], Any]) -> Any:
        """What ``begin`` returns; the watcher is told nothing of what it does."""
        self._busy += 1
        try:
            return begin()
        finally:
            self._busy -= 1

    def _replace(self, owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        original = getattr(owner, name)
        replaced = functools.wraps(original)(make(original))
        setattr(owner, name, replaced)

        def undo() -> None:
            if getattr(owner, name) is replaced:
                setattr(owner, name, original)

        self._undo.append(undo)

    def _iterating(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def iterate(loader: DataLoader[Any]) -> Iterator[Any]:
            if self._busy:
                return original(loader)  # type: ignore[no-any-return]
            return self.watcher.iterates(loader, lambda: original(loader))

        return iterate

    def _building(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def build(optimizer: Optimizer, *arguments: Any, **options: Any) -> None:
            original(optimizer, *arguments, **options)
            if not self._busy:
                self._optimizers.append(weakref.ref(optimizer))

        return build

    def _going_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(tensors: Any, *arguments: Any, **options: Any) -> Any:
            if not self._busy and isinstance(tensors, Tensor):
                self.watcher.goes_backward(tensors)
            return original(tensors, *arguments, **options)

        return backward

    def _setting(self, kind: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            def set_number(number: int) -> None:
                original(number)
                if not self._busy:
                    setattr(self, kind, number)

            return set_number

        return make

    def _calling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(model: nn.Module, *arguments: Any, **options: Any) -> Any:
            if self._busy or not model.training or not torch.is_grad_enabled():
                return original(model, *arguments, **options)
            self.watcher.calls(model)
            self._busy += 1  # its parts are called now
            try:
                return original(model, *arguments, **options)
            finally:
                self._busy -= 1

        return call

    def _stepped(self, optimizer: Optimizer, *_: object) -> None:
        if not self._busy:
            self.watcher.steps(optimizer)


def trains(model: nn.Module, optimizers: list[Optimizer]) -> bool:
    """Whether one of ``optimizers`` holds a parameter of ``model``."""
    held = set(map(id, parameters_of(*optimizers)))
    return any(id(parameter) in held for parameter in model.parameters())
