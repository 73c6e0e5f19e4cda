"""Run a script inside this process as ``python script.py`` would."""

from __future__ import annotations

import contextlib
import os
import pkgutil
import runpy
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import NamedTuple

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


def run(script: str, arguments: Sequence[str], line: Sequence[str] | None = None) -> None:
    """Run ``script`` as ``__main__``: a file, or a folder or zip file with a ``__main__.py``.

    Args:
        script: its path.
        arguments: ``sys.argv``.
        line: ``sys.orig_argv``; as it is if None.
    """
    path = os.path.join(os.getcwd(), script)
    sys.argv = list(arguments)
    sys.orig_argv = list(line or sys.orig_argv)
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        del sys.path[0]  # of -m: the current folder
        if pkgutil.get_importer(path) is None:  # else runpy puts the path itself there
            sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    runpy.run_path(path, run_name="__main__")


def run_module(name: str, arguments: Sequence[str]) -> None:
    """Run module ``name`` as ``python -m name`` with ``arguments`` of its own does."""
    sys.argv, sys.path[0] = [name, *arguments], os.getcwd()
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def ended(work: Callable[[], object]) -> Ended:
    """Do ``work``; print an uncaught error, from the script's first frame on."""
    try:
        work()
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            return Ended(None, (left.code or 0) & 0xFF)
        print(left.code, file=sys.stderr)
        return Ended(None, 1)
    except BaseException as error:
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename.startswith(OURS):
            frames = frames.tb_next
        error.__traceback__ = frames
        traceback.print_exception(type(error), error, frames)
        return Ended(error, int(signal.SIGINT) if isinstance(error, KeyboardInterrupt) else 1)
    return Ended(None, 0)


def flush() -> None:
    """Write out what the script has printed."""
    for stream in (sys.stderr, sys.stdout):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # None, a pipe that nobody reads, or closed
            stream.flush()
