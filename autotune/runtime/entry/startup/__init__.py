"""Lets Python itself run the script, and is prepared for it before: this folder stands on its path while it starts.

Python then imports `sitecustomize` from here, before it looks at the script. That takes away all marks of this, so that
the script and its own processes see nothing of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

FOLDER = str(Path(__file__).resolve().parent)
BACKEND = "AUTOTUNE_STARTS_WITH"
PATH, OWN_PATH = "PYTHONPATH", "AUTOTUNE_OWN_PYTHONPATH"
"""The variable that Python reads, and where the user's value of it waits meanwhile."""


def works() -> bool:
    """Return whether Python, started with the flags of this process, reads `FOLDER`."""
    return bool(sys.executable) and not (sys.flags.ignore_environment or sys.flags.no_site or os.pathsep in FOLDER)


def mark(environment: MutableMapping[str, str], backend: str) -> None:
    """Have a Python that starts with ``environment`` be prepared for ``backend``."""
    own = environment.get(PATH)
    if own is not None:
        environment[OWN_PATH] = own
    environment[PATH] = os.pathsep.join([FOLDER, own] if own else [FOLDER])
    environment[BACKEND] = backend


def unmark(environment: MutableMapping[str, str]) -> str | None:
    """Make ``environment`` what it was. Returns the backend; None where there was no mark."""
    backend = environment.pop(BACKEND, None)
    if backend is not None:
        del environment[PATH]
        if OWN_PATH in environment:
            environment[PATH] = environment.pop(OWN_PATH)
    return backend
