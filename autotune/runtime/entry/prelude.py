"""Prepare the process of a script: the backend and the settings are put in place when it imports PyTorch.

Not before: PyTorch reads variables then that the script may set itself, such as ``OMP_NUM_THREADS`` or ``TORCH_LOGS``.
"""

from __future__ import annotations

import functools
import importlib.abc
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from autotune.environment import SCRIPT_VARIABLE
from autotune.knobs.backend import BACKENDS


def prepare(backend: str) -> None:
    """Put ``backend``, and what `autotune run` applies to the script, in place once PyTorch is imported."""
    order = os.environ.pop(SCRIPT_VARIABLE, None)
    if BACKENDS[backend].module is None and order is None:
        return
    prepared = functools.partial(_with_torch, backend, os.getpid(), order)
    if "torch" in sys.modules:
        prepared()
    else:
        sys.meta_path.insert(0, Torch(prepared))


class Torch(importlib.abc.MetaPathFinder):
    """Calls ``after`` once PyTorch has been imported, and then is gone."""

    def __init__(self, after: Callable[[], None]) -> None:
        self.after = after

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return what the other finders find. To look PyTorch up is not to import it yet."""
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


def _with_torch(backend: str, process: int, order: str | None) -> None:
    """Do the work. Settings are left out in a forked child of ``process``: it need not be one that trains."""
    if BACKENDS[backend].module is not None:
        from autotune.runtime import processes

        processes.replace_init(functools.partial(_starting, processes.registered(backend)))
    if order is not None and os.getpid() == process:
        from autotune.scripts.apply import Applied, Order

        Applied(Order.from_text(order)).install()
