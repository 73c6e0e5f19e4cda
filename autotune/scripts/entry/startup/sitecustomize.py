"""Python imports this while it starts. See `autotune.scripts.entry.startup`."""

from __future__ import annotations

import importlib
import os
import sys
import traceback


def _prepare(folder: str) -> None:
    """Take this file's traces away and prepare for the script."""
    del sys.modules[__name__]  # the user may have a module of this name
    sys.path.remove(folder)
    sys.path_importer_cache.pop(folder, None)
    sys.path.append(os.path.abspath(os.path.join(folder, *[os.pardir] * 4)))  # a checkout may be on no path
    try:
        from autotune.scripts.entry import startup
    finally:
        sys.path.pop()
    backend = startup.unmark(os.environ)
    if backend is not None:
        startup.prepare(backend)


try:
    _prepare(os.path.dirname(__file__))
except BaseException:  # Python would continue without the settings
    traceback.print_exc()
    os._exit(1)

# The user's own. If there is none, Python expects this error.
importlib.import_module("sitecustomize")
