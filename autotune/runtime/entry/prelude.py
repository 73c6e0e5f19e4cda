"""What the entry does in the process of a script: puts the backend in place and starts the watch.

It waits until the script itself imports PyTorch, which reads variables then that the script may set before:
``OMP_NUM_THREADS``, ``TORCH_LOGS`` and others.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import importlib.abc
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from autotune.environment import SCRIPT_VARIABLE, TIMEOUT_VARIABLE
from autotune.knobs.backend import BACKENDS


def prepare(backend: str) -> None:
    """See that ``backend`` is in place and the watch is on once PyTorch is imported."""
    order, timed = os.environ.pop(SCRIPT_VARIABLE, None), TIMEOUT_VARIABLE in os.environ
    if BACKENDS[backend].module is None and not timed and order is None:
        return
    prepared = functools.partial(_with_torch, backend, os.getpid(), order)
    if "torch" in sys.modules:
        prepared()
        return
    if timed:
        _watch_without_torch()
    sys.meta_path.insert(0, Torch(faulthandler.cancel_dump_traceback_later if timed else lambda: None, prepared))


class Torch(importlib.abc.MetaPathFinder):
    """Calls ``before`` and ``after`` around the first import of PyTorch, and then is gone."""

    def __init__(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        self.before, self.after = before, after

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What the other finders find. To look PyTorch up is not to import it yet."""
        if fullname != "torch":
            return None
        finders = [finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec")]
        found = (finder.find_spec(fullname, path, target) for finder in finders)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            self._wrap(spec.loader)
        return spec

    def _wrap(self, loader: Any) -> None:
        original = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # the class's own is seen again
            self.before()
            original(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self.after()

        loader.exec_module = exec_module


def _starting(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Let ``init_process_group`` start backend ``name``, whatever the script asks for."""

    def init_process_group(backend: str | None = None, *positional: Any, **options: Any) -> Any:
        options.pop("pg_options", None)  # they are the replaced backend's
        options.pop("device_id", None)
        return original(name, *positional, **options)

    return init_process_group


def _with_torch(backend: str, process: int, order: str | None = None) -> None:
    """Do the work. A forked child of ``process`` is left alone: it need not be one that trains."""
    if BACKENDS[backend].module is not None:
        from autotune.runtime import processes

        processes.replace_init(functools.partial(_starting, processes.registered(backend)))
    if os.getpid() != process:
        return
    if order is not None:
        from autotune.scripts.apply import Applied, Order

        Applied(Order.from_text(order)).install()
    if TIMEOUT_VARIABLE in os.environ:
        from autotune.runtime import watchdog

        seconds = watchdog.seconds_of(os.environ)
        if seconds is not None:
            watchdog.watch(seconds)


def _watch_without_torch() -> None:
    """A script that hangs before it imports PyTorch ends too, and shows its stack; not without stderr or a duration."""
    with contextlib.suppress(ValueError, OverflowError, AttributeError, RuntimeError):
        seconds = float(os.environ.get(TIMEOUT_VARIABLE, ""))
        faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__ or sys.stderr)
