"""Shows what a running script trains with: its loaders, models, optimizers and backward passes.

For trials and the run that looks where a script trains. Nothing is changed on import, and compilers see none of it: no
module's call is changed, and calls are no longer looked at once the script compiles something.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import DataLoader

from autotune.knobs.change import Method, replace
from autotune.scripts.apply import SharedBatch

Begin = Callable[[], Iterator[Any]]


class Listener:
    """Receives what the script does. The base class changes nothing."""

    def iterates(self, loader: DataLoader[Any], begin: Begin) -> Iterator[Any]:
        """Return what the script gets when it begins to iterate ``loader``: by default what ``begin`` gives."""
        return begin()

    def calls(self, model: nn.Module) -> None:
        """Handle a call of ``model`` in training, just before it; calls inside it are not reported."""

    def goes_backward(self, loss: Tensor) -> None:
        """Handle a backward pass from ``loss``, just before it."""

    def before_step(self, optimizer: Optimizer) -> None:
        """Handle a step of ``optimizer``, just before it."""

    def steps(self, optimizer: Optimizer) -> None:
        """Handle a step of ``optimizer``, just after it."""

    def script_ended(self, ended: Any) -> int:
        """Handle the end of the script; returns the exit code."""
        return 1


def place_of(frame: FrameType) -> str:
    """Return the line that ``frame`` runs, as ``train.py:40``."""
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


class _Busy(threading.local):
    """How many calls of `Hooks.unseen` a thread is in: batches may be read in another one than the script trains in."""

    depth = 0


class Hooks:
    """Hooks into PyTorch that call a `Listener`.

    Attributes:
        listener: is called. It may be replaced at any time.
        optimizers: those that the script has built, and still holds, oldest first.
        compiles: True once the script has asked for `torch.compile`.
        threads: that it has asked PyTorch for; None if it has not.
        interop_threads: likewise.
        threads_set: how, and on which line, it has asked for its threads.
        threads_wait: until it trains it has one thread, whatever it asks for: the others would forbid forks.
    """

    def __init__(self, listener: Listener | None = None) -> None:
        self.listener = listener or Listener()
        self.compiles = False
        self.threads: int | None = None
        self.threads_set = ""
        self.interop_threads: int | None = None
        self.threads_wait = False
        self._optimizers: list[weakref.ref[Optimizer]] = []
        self._undo: list[Callable[[], object]] = []
        self._calls: list[Any] = []
        self._inside: nn.Module | None = None
        self._busy = _Busy()

    @property
    def optimizers(self) -> list[Optimizer]:
        found = (reference() for reference in self._optimizers)
        return [optimizer for optimizer in found if optimizer is not None]

    def install(self) -> None:
        """Install the hooks."""
        self._undo += [
            replace(DataLoader, "__iter__", self._iterating),
            replace(Optimizer, "__init__", self._building),
            replace(torch.autograd, "backward", self._going_backward),
            replace(torch, "set_num_threads", self._setting_threads),
            replace(torch, "get_num_threads", self._getting_threads),
            replace(torch, "set_num_interop_threads", self._setting_interop_threads),
            replace(torch, "compile", self._compiling),
            register_optimizer_step_pre_hook(self._before_step).remove,
            register_optimizer_step_post_hook(self._stepped).remove,
        ]

    def share(self, shared: SharedBatch) -> None:
        """Give the loaders that are built from now on one process's share of the batch."""
        self._undo.append(replace(DataLoader, "__init__", shared.building))

    def remove(self) -> None:
        """Put everything back."""
        self.ignore_calls()
        while self._undo:
            self._undo.pop()()

    def look_at_calls(self) -> None:
        """Report calls of models, too, until the script compiles something."""
        if not self._calls and not self.compiles:
            self._calls = [register_module_forward_pre_hook(self._called), register_module_forward_hook(self._returned)]

    def ignore_calls(self) -> None:
        """Report no more calls of models."""
        while self._calls:
            self._calls.pop().remove()

    def unseen(self, work: Callable[[], Any]) -> Any:
        """Return what ``work`` returns; the listener is not called meanwhile by this thread."""
        self._busy.depth += 1
        try:
            return work()
        finally:
            self._busy.depth -= 1

    def _iterating(self, original: Method) -> Method:
        def iterate(loader: DataLoader[Any]) -> Iterator[Any]:
            if self._busy.depth:
                return original(loader)  # type: ignore[no-any-return]
            return self.listener.iterates(loader, lambda: original(loader))

        return iterate

    def _building(self, original: Method) -> Method:
        def build(optimizer: Optimizer, *arguments: Any, **options: Any) -> None:
            original(optimizer, *arguments, **options)
            if not self._busy.depth:
                self._optimizers.append(weakref.ref(optimizer))

        return build

    def _going_backward(self, original: Method) -> Method:
        def backward(tensors: Any, *arguments: Any, **options: Any) -> Any:
            if not self._busy.depth and isinstance(tensors, Tensor):
                self.listener.goes_backward(tensors)
            return original(tensors, *arguments, **options)

        return backward

    def _getting_threads(self, original: Method) -> Method:
        def get_number() -> int:
            waits = self.threads_wait and not self._busy.depth
            return self.threads if waits and self.threads is not None else int(original())

        return get_number

    def _setting_threads(self, original: Method) -> Method:
        def set_number(number: int) -> None:
            is_ours, is_number = bool(self._busy.depth), isinstance(number, int) and number > 0
            if is_ours or not (self.threads_wait and is_number):
                original(number)
            if not is_ours:
                self.threads = number
                self.threads_set = f"torch.set_num_threads({number}) ({place_of(sys._getframe(1))})"

        return set_number

    def _setting_interop_threads(self, original: Method) -> Method:
        def set_number(number: int) -> None:
            try:
                original(number)
            except RuntimeError:  # PyTorch takes them once: those of a trial's settings were first
                if self._busy.depth:
                    raise
                number = torch.get_num_interop_threads()
            if not self._busy.depth:
                self.interop_threads = number

        return set_number

    def _compiling(self, original: Method) -> Method:
        def compile(*arguments: Any, **options: Any) -> Any:
            self.compiles = self.compiles or not self._busy.depth
            self.ignore_calls()
            return original(*arguments, **options)

        return compile

    def _called(self, model: nn.Module, _arguments: Any) -> None:
        if self._busy.depth or self._inside is not None or not model.training or not torch.is_grad_enabled():
            return
        self._inside = model
        self.listener.calls(model)

    def _returned(self, model: nn.Module, _arguments: Any, _outputs: Any) -> None:
        if model is self._inside:
            self._inside = None

    def _before_step(self, optimizer: Optimizer, *_: object) -> None:
        self._inside = None  # a call that raised has not returned
        if not self._busy.depth:
            self.listener.before_step(optimizer)

    def _stepped(self, optimizer: Optimizer, *_: object) -> None:
        if not self._busy.depth:
            self.listener.steps(optimizer)
