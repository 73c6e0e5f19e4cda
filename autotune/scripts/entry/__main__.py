"""Run an unchanged training script on a backend that its ``init_process_group`` does not name, or with settings.

    python -m autotune.scripts.entry gloo train.py ARGS
    mpiexec -n 2 python -m autotune.scripts.entry mpi train.py ARGS
    torchrun --nproc-per-node=2 -m autotune.scripts.entry ccl train.py ARGS

`autotune run` uses this for every script that it changes something for. The script runs in this process (`as_main`).
The backend and the settings are put in place when it imports PyTorch. Not before: PyTorch reads variables then that the
script may set itself, such as ``OMP_NUM_THREADS`` or ``TORCH_LOGS``.

Under mpiexec, on one machine, the script finds the variables that torchrun would set, and an error ends all processes:
a rank that only exits would keep the others waiting for ever.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import os
import sys
import termios
import time
from array import array
from collections.abc import Callable
from types import ModuleType
from typing import Any

from autotune.environment import SCRIPT_VARIABLE
from autotune.knobs.backend import BACKENDS, MPIEXEC
from autotune.runtime import ending
from autotune.scripts.adapters import AfterImport
from autotune.scripts.entry import as_main, torchrun


def main(arguments: list[str]) -> None:
    """Run ``[backend, script, *the script's arguments]``, or ``-m`` and a module in the place of the script."""
    backend, *words = arguments
    run = functools.partial(as_main.run, words, _plain_line())
    if BACKENDS[backend].launcher == MPIEXEC:
        _run_as_rank(backend, run)
        return
    prepare(backend)
    error, status = as_main.ended(run, _uncaught)
    if isinstance(error, KeyboardInterrupt):
        sys.excepthook = lambda *_: None  # it is said already
        raise error
    sys.exit(status)


def prepare(backend: str) -> None:
    """Put ``backend``, and what `autotune run` applies to the script, in place once PyTorch is imported."""
    order = os.environ.pop(SCRIPT_VARIABLE, None)
    if BACKENDS[backend].module is None and order is None:
        return
    AfterImport({"torch": functools.partial(_with_torch, backend, os.getpid(), order)}).install()
    atexit.register(_say_if_without_torch, os.getpid())


def _say_if_without_torch(process: int) -> None:
    """Say that nothing was applied if the script has ended well without PyTorch."""
    if "torch" not in sys.modules and os.getpid() == process and getattr(sys, "last_value", None) is None:
        print("autotune: the script has not imported PyTorch: its profile had no effect", file=sys.stderr)


def _plain_line() -> list[str]:
    """Return this process's command line without what names this module and the backend."""
    words, ours = sys.orig_argv, len(sys.orig_argv) - len(sys.argv) + 1
    return [*words[: ours - 2], *words[ours + 1 :]]


def _uncaught(kind: type[BaseException], error: BaseException, frames: Any) -> None:
    """Show an error as Python does."""
    sys.last_type, sys.last_value, sys.last_traceback = kind, error, frames
    sys.excepthook(kind, error, frames)


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


def _run_as_rank(backend: str, run: Callable[[], None]) -> None:
    """Run the script as a rank of MPI. An orderly end is Python's own; any other ends all ranks at once."""
    from autotune.runtime import mpi

    def work() -> None:
        world = mpi.start().COMM_WORLD
        os.environ.update(torchrun.variables(world.rank, world.size, world.bcast(torchrun.free_port())))
        prepare(backend)
        run()

    process = os.getpid()
    os.environ.setdefault("MPIR_CVAR_SUPPRESS_ABORT_MESSAGE", "1")  # the failing rank reports what is wrong
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # mpiexec reads it through a pipe
    _error, code = as_main.ended(work, _uncaught)
    if os.getpid() != process:  # forked by the script: MPI is its parent's
        as_main.flush()
        os._exit(code)
    if code:
        ending.say()
        as_main.flush()
        _wait_until_read(sys.__stderr__)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # hides MPI's own message
        mpi.abort(code)
        os._exit(code)


def _wait_until_read(pipe: Any, seconds: float = 1.0) -> None:
    """Wait until mpiexec has read what is in ``pipe``: once a rank has aborted it may leave the rest."""
    late, waiting = time.monotonic() + seconds, array("i", [1])
    with contextlib.suppress(AttributeError, OSError, ValueError):  # there is none, or it is closed
        while waiting[0] > 0 and time.monotonic() < late:
            fcntl.ioctl(pipe.fileno(), termios.FIONREAD, waiting)
            time.sleep(0.002)


if __name__ == "__main__":
    main(sys.argv[1:])
