"""Lets Python itself run the script, and prepares it before: this folder is on the module path while Python starts.

Python then imports `sitecustomize` from here, before it looks at the script. That removes all traces of this, so that
the script and its own processes see nothing of it. The backend and the settings are put in place when the script
imports PyTorch. Not before: PyTorch reads variables then that the script may set itself, such as ``OMP_NUM_THREADS`` or
``TORCH_LOGS``.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, MutableMapping
from pathlib import Path
from types import ModuleType
from typing import Any

from autotune.environment import SCRIPT_VARIABLE
from autotune.knobs.backend import BACKENDS
from autotune.scripts.adapters import AfterImport

FOLDER = str(Path(__file__).resolve().parent)
BACKEND = "AUTOTUNE_STARTS_WITH"
PATH, OWN_PATH = "PYTHONPATH", "AUTOTUNE_OWN_PYTHONPATH"
"""The variable that Python reads, and the one that keeps the user's value meanwhile."""


def works() -> bool:
    """Return True if Python, started with the flags of this process, reads `FOLDER`."""
    return bool(sys.executable) and not (sys.flags.ignore_environment or sys.flags.no_site or os.pathsep in FOLDER)


def mark(environment: MutableMapping[str, str], backend: str) -> None:
    """Make a Python that starts with ``environment`` prepare for ``backend``."""
    own = environment.get(PATH)
    if own is not None:
        environment[OWN_PATH] = own
    environment[PATH] = os.pathsep.join([FOLDER, own] if own else [FOLDER])
    environment[BACKEND] = backend


def unmark(environment: MutableMapping[str, str]) -> str | None:
    """Make ``environment`` what it was. Returns the backend; None if there was no mark."""
    backend = environment.pop(BACKEND, None)
    if backend is not None:
        del environment[PATH]
        if OWN_PATH in environment:
            environment[PATH] = environment.pop(OWN_PATH)
    return backend


def prepare(backend: str) -> None:
    """Put ``backend``, and what `autotune run` applies to the script, in place once PyTorch is imported."""
    order = os.environ.pop(SCRIPT_VARIABLE, None)
    if BACKENDS[backend].module is None and order is None:
        return
    AfterImport({"torch": functools.partial(_with_torch, backend, os.getpid(), order)}).install()


def _with_torch(backend: str, process: int, order: str | None, _torch: ModuleType) -> None:
    """Do the work. Settings are left out in a forked child of ``process``: it need not be one that trains."""
    if BACKENDS[backend].module is not None:
        from autotune.runtime import processes

        processes.replace_init(functools.partial(_starting, processes.registered(backend)))
    if order is not None and os.getpid() == process:
        from autotune.scripts.apply import Applied, Order

        Applied(Order.from_text(order)).install()


def _starting(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Let ``init_process_group`` start backend ``name``, whatever the script names."""

    def init_process_group(backend: str | None = None, *positional: Any, **options: Any) -> Any:
        options.pop("pg_options", None)  # they are the replaced backend's
        options.pop("device_id", None)
        return original(name, *positional, **options)

    return init_process_group
