"""Prepare the process of a script: the backend and the settings are put in place when it imports PyTorch.

Not before: PyTorch reads variables then that the script may set itself, such as ``OMP_NUM_THREADS`` or ``TORCH_LOGS``.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from autotune.environment import SCRIPT_VARIABLE
from autotune.knobs.backend import BACKENDS
from autotune.scripts.adapters import AfterImport


def prepare(backend: str) -> None:
    """Put ``backend``, and what `autotune run` applies to the script, in place once PyTorch is imported."""
    order = os.environ.pop(SCRIPT_VARIABLE, None)
    if BACKENDS[backend].module is None and order is None:
        return
    AfterImport({"torch": functools.partial(_with_torch, backend, os.getpid(), order)}).install()


def _starting(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Let ``init_process_group`` start backend ``name``, whatever the script asks for."""

    def init_process_group(backend: str | None = None, *positional: Any, **options: Any) -> Any:
        options.pop("pg_options", None)  # they are the replaced backend's
        options.pop("device_id", None)
        return original(name, *positional, **options)

    return init_process_group


def _with_torch(backend: str, process: int, order: str | None, _torch: ModuleType) -> None:
    """Do the work. Settings are left out in a forked child of ``process``: it need not be one that trains."""
    if BACKENDS[backend].module is not None:
        from autotune.runtime import processes

        processes.replace_init(functools.partial(_starting, processes.registered(backend)))
    if order is not None and os.getpid() == process:
        from autotune.scripts.apply import Applied, Order

        Applied(Order.from_text(order)).install()
