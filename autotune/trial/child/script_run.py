"""Run the user's script in this process as Python itself would, watched, to its end or to that of a trial."""

from __future__ import annotations

import ast
import contextlib
import importlib
import os
import random
import runpy
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy

from autotune.runtime.entry import as_main
from autotune.scripts import quiet
from autotune.scripts.hooks import Hooks
from autotune.trial.isolation.isolate import Isolation, isolate
from autotune.trial.script import THREAD_VARIABLES, Script

SEED = 0
OUR_ONE = "01"
"""Means one thread, and can be told from a 1 that the script sets itself."""


@dataclass(frozen=True)
class Ended:
    """How a script ended by itself: the exception that nobody caught, or its exit status."""

    error: BaseException | None
    status: int

    @property
    def failure(self) -> BaseException | None:
        """What ended it; None where it came to its end."""
        return self.error or (SystemExit(self.status) if self.status else None)


def preload(script: Script) -> None:
    """Import what the first lines of ``script`` import from libraries, so that all trials share it."""
    for name in _imported(script):
        with contextlib.suppress(BaseException):  # the script itself will meet the error
            importlib.import_module(name)


def run(script: Script, hooks: Hooks) -> Ended:
    """Run ``script`` from its start, with ``hooks`` installed.

    Args:
        script: the user's.
        hooks: report what the script trains with.
    """
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, OUR_ONE))
    os.environ.update({name: value for name, value in quiet.variables().items() if name not in os.environ})
    quiet.prepare(_text(script))
    as_main.pose(script.written, [script.written, *script.arguments], None)
    hooks.install()
    random.seed(SEED)  # an unseeded script is the same in every trial
    numpy.random.seed(SEED)
    sys.last_value = None
    try:
        status = _run_module(script.module) if script.module else as_main.run(str(script.path))
    except SystemExit as left:
        return Ended(None, as_main.exit_status(left.code))
    return Ended(sys.last_value if status else None, status)


def enter_isolation(script: Script, scratch: Path) -> Isolation:
    """From now on, nothing that this process and its children do reaches the user's world."""
    isolation = isolate(scratch, Path.cwd(), network=script.network)
    for limit in (*isolation.limits, *isolation.gaps):
        print(f"autotune: {limit}", file=sys.stderr)
    return isolation


def _text(script: Script) -> str:
    try:
        return script.path.read_text(errors="replace")
    except OSError:
        return ""


def _run_module(name: str) -> int:
    sys.path[0] = os.getcwd()
    return as_main.ended(lambda: runpy._run_module_as_main(name))  # type: ignore[attr-defined]


def _imported(script: Script) -> Iterator[str]:
    """Libraries that ``script`` imports before it does anything else: what it does may matter to later imports."""
    with contextlib.suppress(OSError, SyntaxError, ValueError):
        for node in ast.parse(script.path.read_bytes()).body:
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module] if node.module and not node.level else []
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                continue  # the docstring
            else:
                return
            yield from (name for name in names if name != "__future__" and not _is_own(script, name))


def _is_own(script: Script, name: str) -> bool:
    """Whether a module lies beside the script: it may do anything when it is imported."""
    top = name.partition(".")[0]
    folders = (script.path.parent, os.getcwd())
    return any(os.path.exists(os.path.join(folder, top + end)) for folder in folders for end in ("", ".py"))
