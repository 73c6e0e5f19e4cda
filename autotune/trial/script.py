"""An unmodified training script as a target."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.errors import UsageError
from autotune.trial.task_file import REQUIRED, TaskFile, parse, recognise, top_level_names


@dataclass(frozen=True)
class Script:
    """A script and how it is started.

    Attributes:
        path: the file.
        arguments: its own, as they were written.
        written: the path as it was written, which the script sees in ``sys.argv[0]``.
        module: the module's name where it is started with ``-m``.
        network: whether its trials may reach other machines.
    """

    path: Path
    arguments: tuple[str, ...] = ()
    written: str = ""
    module: str | None = None
    network: bool = False

    @property
    def name(self) -> str:
        """The target's name: the file's stem, or the package's for a ``__main__.py``."""
        return self.path.parent.name if self.path.stem == "__main__" else self.path.stem

    @property
    def hides_us(self) -> str | None:
        """Why this package cannot be imported into the script's process; None if it can."""
        folder = Path.cwd() if self.module else self.path.parent
        for own in (folder / "autotune.py", folder / "autotune" / "__init__.py"):
            if own.is_file() and own.resolve() != PACKAGE / "__init__.py":
                return f"{own} is the script's own module of this package's name"
        return None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**vars(self), "path": str(self.path), "arguments": list(self.arguments)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Script:
        """The inverse of `as_dict`."""
        return cls(**{**data, "path": Path(data["path"]), "arguments": tuple(data["arguments"])})


PACKAGE = Path(__file__).resolve().parents[1]
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
"""Trials start with one thread, whatever the user has set."""
Target = TaskFile | Script


def recognise_target(
    written: str, arguments: Sequence[str] = (), *, module: bool = False, network: bool = False
) -> Target:
    """The task file or script that ``written`` names. A file is recognised by its syntax tree; nothing is run.

    Args:
        written: a path, or a module's name.
        arguments: the script's own.
        module: ``written`` is started with ``-m``.
        network: trials of a script may reach other machines.

    Raises:
        UsageError: there is no such file, it is no Python, or a task file was given arguments.
        ContractError: a task file lacks something.
    """
    if module:
        return _visible(replace(started_script(written, arguments, module=True), network=network))
    path = Path(written)
    if not is_script(path):
        if arguments:
            raise UsageError(f"{written} is a task file, which takes no arguments: {' '.join(arguments)}")
        return recognise(path)
    return _visible(replace(started_script(written, arguments), network=network))


def _visible(script: Script) -> Script:
    """Return ``script``; raise `UsageError` if this package would hide a module of its own."""
    if script.hides_us:
        raise UsageError(f"{script.hides_us}, which trials would hide: give it another name to tune the script")
    return script


def started_script(written: str, arguments: Sequence[str], *, module: bool = False) -> Script:
    """The script that ``written`` names, whatever is in it.

    Raises:
        UsageError: there is no such file or module.
    """
    if module:
        return Script(_module_file(written), tuple(arguments), written, written)
    if not Path(written).exists():
        raise UsageError(f"{written}: no such script")
    if Path(written).is_dir() and not Path(written, "__main__.py").is_file():
        raise UsageError(f"{written}: is a folder without a __main__.py. Name the script in it")
    return Script(Path(written).resolve(), tuple(arguments), written)


def is_script(path: Path) -> bool:
    """Whether ``path`` does something when it is run, and is no task file.

    Raises:
        UsageError: there is no such file, or it is no Python.
    """
    tree = parse(path)
    defined = top_level_names(tree) & set(REQUIRED)
    if len(defined) == len(REQUIRED):
        return False
    return any(_does_something(node) or (not defined and _keeps_a_result(node)) for node in tree.body)


def _keeps_a_result(node: ast.stmt) -> bool:
    """True for ``result = main()``, which a task file may have, too: ``DATA = read()``."""
    inner = node.body if isinstance(node, ast.If | ast.Try) else []
    return (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)) or any(map(_keeps_a_result, inner))


def _does_something(node: ast.stmt) -> bool:
    """True for a statement that may train: a call, a loop, or a block of such, such as ``if __name__ == ...``."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
        return False
    if isinstance(node, ast.For | ast.While | ast.With | ast.Raise):
        return True
    if isinstance(node, ast.If | ast.Try):
        return any(_does_something(inner) for inner in node.body)
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def _module_file(name: str) -> Path:
    """The file of module ``name``, found without importing anything.

    Raises:
        UsageError: there is none.
    """
    parts = name.split(".")
    for folder in (Path.cwd(), *map(Path, filter(None, sys.path))):
        for candidate in (folder.joinpath(*parts, "__main__.py"), folder.joinpath(*parts).with_suffix(".py")):
            if candidate.is_file():
                return candidate.resolve()
    raise UsageError(f"-m {name}: no such module below {Path.cwd()} or on the module path")
