"""Run a script inside this process as ``python script.py`` would."""

from __future__ import annotations

import builtins
import contextlib
import io
import os
import pkgutil
import runpy
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any, NamedTuple

OURS = (os.path.dirname(__file__), runpy.__file__, "<frozen runpy>")
"""How the names of files begin whose frames stand below the script's first."""


class Ended(NamedTuple):
    """The end of a script: its uncaught error, and its exit status, 0 to 255. `sys.exit` is no error."""

    error: BaseException | None
    status: int

    @property
    def failure(self) -> BaseException | None:
        """Return what ended it; None if it came to its end."""
        return self.error or (SystemExit(self.status) if self.status else None)


def run(words: Sequence[str], line: Sequence[str] | None = None) -> None:
    """Run ``words`` as ``python WORDS`` does. Python put the folder of its own start first in ``sys.path``.

    Args:
        words: a file, or a folder or zip file with a ``__main__.py``, and its arguments; or ``-m`` and a module.
        line: ``sys.orig_argv``; as it is if None.
    """
    sys.orig_argv = list(line or sys.orig_argv)
    main = sys.modules["__main__"] = ModuleType("__main__")
    vars(main).update({"__annotations__": {}} if sys.version_info < (3, 14) else {}, __builtins__=builtins)
    safe = sys.flags.isolated or getattr(sys.flags, "safe_path", False)
    if words[0] == "-m":
        sys.argv = list(words[1:])
        if not safe:
            sys.path[0] = os.getcwd()
        runpy._run_module_as_main(words[1])  # type: ignore[attr-defined]
        return
    sys.argv, path = list(words), os.path.join(os.getcwd(), words[0])
    if not safe:
        del sys.path[0]
    if pkgutil.get_importer(path) is not None:
        sys.path.insert(0, path)
        runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]
        return
    if not safe:
        sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    vars(main).update(__loader__=SourceFileLoader("__main__", path), __file__=path, __cached__=None)
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, vars(main))


def ended(work: Callable[[], object], show: Callable[..., Any] = traceback.print_exception) -> Ended:
    """Do ``work``; ``show`` an uncaught error, from the script's first frame on."""
    try:
        work()
        return Ended(None, 0)
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            return Ended(None, (left.code or 0) & 0xFF)
        print(left.code, file=sys.stderr)
        return Ended(None, 1)
    except BaseException as caught:
        error = caught
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(OURS):
        frames = frames.tb_next
    error.__traceback__ = frames
    show(type(error), error, frames)
    return Ended(error, int(signal.SIGINT) if isinstance(error, KeyboardInterrupt) else 1)


def flush() -> None:
    """Write out what the script has printed."""
    for stream in (sys.stderr, sys.stdout):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # None, a pipe that nobody reads, or closed
            stream.flush()
