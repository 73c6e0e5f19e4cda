"""Loads the functions of a Python session that `autotune.trial.parent.session_task` has written."""

from __future__ import annotations

import hashlib
import linecache
import os
import pickle
import stat
import sys
from pathlib import Path
from typing import Any

from autotune.trial.paths import session_file


def read(task: str, digest: str) -> dict[str, Any]:
    """The functions that belong to the task file ``task``, by name.

    Nothing is unpickled but what this run has written: a file with this ``digest`` (SHA-256) that nobody but this user
    can write or read, in a folder of which the same is true.

    Raises:
        PermissionError: it is anything else.
    """
    path = session_file(Path(task))
    data = _private(path)
    if hashlib.sha256(data).hexdigest() != digest:
        raise PermissionError(f"{path}: not the file that this run has written; it is not loaded")
    session = pickle.loads(data)
    _hide(path.parent, Path(task).stem)
    sys.path[:] = [*session["path"], *(entry for entry in sys.path if entry not in session["path"])]
    for name, lines in session["sources"].items():
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
    parts: dict[str, Any] = pickle.loads(session["parts"])
    return parts


def _hide(folder: Path, name: str) -> None:
    """The session may import a module of its own that has the target's name."""
    if str(folder) in sys.path:
        sys.path.remove(str(folder))
    if Path(getattr(sys.modules.get(name), "__file__", None) or "").parent == folder:
        del sys.modules[name]


def _private(path: Path) -> bytes:
    """Content of a file that is this user's alone."""
    folder = os.stat(path.parent, follow_symlinks=False)
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        for place, found in ((path.parent, folder), (path, os.fstat(file.fileno()))):
            if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
                raise PermissionError(f"{place}: others can read or write it, so nothing in it is loaded")
        return file.read()
