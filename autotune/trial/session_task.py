"""Functions of a running Python session (a notebook, a prompt), written as a task file that trial processes load.

Classes and functions of ``__main__`` exist in no file that another process could import, so cloudpickle writes them by
value, with the globals that they use. Beside the pickle lies a task file of a few lines that loads it: for everything
else a session is a task file. Both lie in a folder that only this user can enter.
"""

from __future__ import annotations

import inspect
import linecache
import os
import pickle
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cloudpickle

from autotune.errors import ContractError, UsageError
from autotune.trial.target import OPTIONAL, PARAMETERS, REQUIRED

HEAD = """\
\"\"\"Functions of a Python session, written for one tuning run and removed with it.\"\"\"

from autotune.trial.session_task import read

_PARTS = read(__file__)
"""
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


def write(parts: Mapping[str, Any], name: str, folder: Path) -> Path:
    """Write a task file called ``name`` in ``folder``, made of the functions and ``CURRENT`` in ``parts``.

    Args:
        parts: what a task file would define, by name.
        name: of the target.
        folder: private to this user and this run: what lies in it is unpickled.

    Raises:
        UsageError: the name cannot be a file's, or a part cannot be sent to another process.
        ContractError: a required function is missing, or takes the wrong number of parameters.
    """
    if not NAME.fullmatch(name):
        raise UsageError(
            f"name={name!r}: use letters, digits, and _ . - after the first; the profile's file is called so"
        )
    _check(parts)
    task = folder / f"{name}.py"
    path = [os.path.abspath(entry) for entry in sys.path]  # trials run in folders of their own
    with task.with_suffix(".pickle").open("xb") as file:
        pickle.dump({"parts": _pickled(parts), "path": path, "sources": _sources()}, file)
    with task.open("x") as text:
        text.write(HEAD + "".join(f"{part} = _PARTS[{part!r}]\n" for part in parts))
    return task


def _check(parts: Mapping[str, Any]) -> None:
    missing = [name for name in REQUIRED if name not in parts]
    if missing:
        needed = "\n\n".join(REQUIRED[name] for name in missing)
        words = ", ".join(f"{name}=..." for name in missing)
        raise ContractError(f"tune() needs a task file, or these functions too: {words}. For example:\n\n{needed}\n")
    unknown = [name for name in parts if name not in (*REQUIRED, *OPTIONAL)]
    if unknown:
        raise UsageError(f"{unknown[0]} is no part of a task; parts are: {', '.join((*REQUIRED, *OPTIONAL))}")
    for name, part in parts.items():
        if name != "CURRENT" and not _accepts(part, PARAMETERS.get(name, 1)):
            raise ContractError(f"{name} must be a function of {PARAMETERS.get(name, 1)} positional parameter(s)")


def _accepts(part: Any, count: int) -> bool:
    if not callable(part):
        return False
    try:
        inspect.signature(part).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # built-in functions may have no signature
        return True
    return True


def _pickled(parts: Mapping[str, Any]) -> bytes:
    """Return all parts in one pickle: what they share stays shared."""
    try:
        data: bytes = cloudpickle.dumps(dict(parts))
    except Exception as error:
        guilty = next((name for name, part in parts.items() if not _can_be_pickled(part)), "a function")
        raise UsageError(
            f"{guilty} cannot be sent to trial processes ({type(error).__name__}: {error}). Open files, locks and"
            " connections inside the function, not outside it"
        ) from error
    return data


def _can_be_pickled(part: Callable[..., Any]) -> bool:
    try:
        cloudpickle.dumps(part)
    except Exception:
        return False
    return True


def _sources() -> dict[str, list[str]]:
    """Return the text of code that stands in no file, such as a notebook's cells: tracebacks show it."""
    entries = [(name, entry) for name, entry in linecache.cache.items() if isinstance(name, str) and len(entry) == 4]
    return {name: list(entry[2]) for name, entry in entries if not os.path.isfile(name)}


def read(task: str) -> dict[str, Any]:
    """Return the functions that belong to the task file ``task``, by name."""
    session = pickle.loads(Path(task).with_suffix(".pickle").read_bytes())
    _hide(Path(task).parent, Path(task).stem)
    sys.path[:] = [*session["path"], *(entry for entry in sys.path if entry not in session["path"])]
    for name, lines in session["sources"].items():
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
    parts: dict[str, Any] = pickle.loads(session["parts"])
    return parts


def _hide(folder: Path, name: str) -> None:
    """Hide the task file's module: the session may import one of its own that has the target's name."""
    if str(folder) in sys.path:
        sys.path.remove(str(folder))
    if Path(getattr(sys.modules.get(name), "__file__", None) or "").parent == folder:
        del sys.modules[name]
