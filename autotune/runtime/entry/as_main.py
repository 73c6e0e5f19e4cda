"""Run a script inside this process as ``python script.py`` would, to its very end.

What Python does is in `Modules/main.c` and `Python/pythonrun.c` of its sources. One thing differs: this process's
frames stand below the script's first.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import pkgutil
import runpy
import signal
import sys
import types
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path


def pose(script: str, arguments: list[str], line: list[str] | None) -> None:
    """Let `sys` look as ``python script.py`` has it.

    Args:
        script: as it was written.
        arguments: ``sys.argv``.
        line: ``sys.orig_argv``; as it is where None.
    """
    sys.argv = arguments
    sys.orig_argv = line or sys.orig_argv
    own_folder = not (sys.flags.isolated or getattr(sys.flags, "safe_path", False))
    if own_folder:
        del sys.path[0]  # of -m: the current folder
    if _holds_main(script):
        sys.path.insert(0, _absolute(script))
    elif own_folder:
        sys.path.insert(0, os.path.dirname(os.path.realpath(script)))


def run(script: str) -> int:
    """Run ``script`` as ``__main__``; it may be a folder or a zip file with a ``__main__.py``. See `ended`.

    Raises:
        SystemExit: the script's own; or there is no such file, or it is compiled already.
    """
    main = sys.modules["__main__"] = _main_module(_absolute(script))
    if _holds_main(script):
        return ended(lambda: runpy._run_module_as_main("__main__", alter_argv=False))  # type: ignore[attr-defined]
    if script.endswith(".pyc"):
        sys.exit(f"autotune: {script} is compiled; under mpiexec only source runs, give the .py file")
    code = ended(lambda: _run_file(_absolute(script), main))
    for name in ("__file__", "__cached__"):
        vars(main).pop(name, None)
    return code


def ended(work: Callable[[], object]) -> int:
    """Do ``work``; an error that nobody caught is printed as Python prints it.

    Returns:
        0; 1 after an error; ``-SIGINT`` where it was Ctrl-C. SystemExit passes.
    """
    failed = _failure(work)
    if failed is None:
        return 0
    _print(failed)
    return -signal.SIGINT if type(failed) is KeyboardInterrupt else 1


def exit_status(code: object) -> int:
    """What the parent process sees of ``sys.exit(code)``: 0 to 255."""
    if code is None:
        return 0
    if not isinstance(code, int):
        return 1
    return (code if -(2**63) <= code < 2**63 else -1) & 0xFF


def flush() -> None:
    """As Python does when the script is over; what fails here fails again at the end, and is said then."""
    for stream in (sys.stderr, sys.stdout):
        with contextlib.suppress(Exception):  # None, closed, or a pipe that nobody reads
            stream.flush()


def _failure(work: Callable[[], object]) -> BaseException | None:
    """What ``work`` raises, without frames of this file. No error is being handled then: hooks and chains see none."""
    try:
        work()
    except SystemExit:
        raise
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        return error.with_traceback(trace)
    return None


def _print(error: BaseException) -> None:
    """What ``PyErr_Print`` does."""
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    second = _failure(lambda: sys.excepthook(type(error), error, error.__traceback__))
    if second is not None:
        _display("Error in sys.excepthook:\n", second)
        _display("\nOriginal exception was:\n", error)


def _display(words: str, error: BaseException) -> None:
    if sys.stderr is not None:
        sys.stderr.write(words)
    sys.__excepthook__(type(error), error, error.__traceback__)


def _run_file(path: str, main: types.ModuleType) -> None:
    try:
        source = Path(path).read_bytes()
    except OSError as error:
        sys.stderr.write(f"{sys.orig_argv[0]}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}\n")
        sys.exit(2)
    try:
        exec(compile(source, path, "exec", dont_inherit=True), vars(main))
    finally:
        flush()


def _main_module(path: str) -> types.ModuleType:
    """A module with what Python puts into ``__main__``, in its order."""
    main = types.ModuleType("__main__")
    main.__loader__ = SourceFileLoader("__main__", path)
    content: dict[str, object] = {"__annotations__": {}} if sys.version_info < (3, 14) else {}
    content["__builtins__"] = builtins
    if not _holds_main(path):
        content |= {"__file__": path, "__cached__": None}
    vars(main).update(content)
    return main


def _holds_main(script: str) -> bool:
    """True for what imports can look into: a folder or a zip file."""
    return pkgutil.get_importer(_absolute(script)) is not None


def _absolute(script: str) -> str:
    return script if os.path.isabs(script) else os.path.join(os.getcwd(), script)
