"""Run an unchanged training script on a backend that its ``init_process_group`` does not name, or watched.

    mpiexec -n 2 python -m autotune.runtime.entry mpi train.py ARGS
    torchrun --nproc-per-node=2 -m autotune.runtime.entry ccl train.py ARGS

The script sees what ``python train.py ARGS`` shows it. Without MPI this process becomes just that (`startup`). Under
mpiexec it finds the variables that torchrun would set, and an error ends all processes: a rank that merely left would
keep the others waiting for ever. Python tells nobody how a script ended before it tells MPI that this rank is done; so
this process runs the script itself then (`as_main`).
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from typing import Any

from autotune.knobs.backend import BACKENDS, MPIEXEC
from autotune.runtime.entry import startup
from autotune.runtime.entry.torchrun import free_port


def main(arguments: list[str]) -> None:
    """``[backend, script, *the script's arguments]``."""
    backend, script, *_rest = arguments
    under_mpi = BACKENDS[backend].launcher == MPIEXEC
    line = _plain_line()
    if line and not under_mpi and startup.works():
        startup.mark(os.environ, backend)
        os.execv(sys.executable, line)
    _run(backend, script, arguments[1:], line, under_mpi)


def torchrun_variables(api: Any) -> dict[str, str]:
    """What torchrun would say: ranks, sizes, and where to meet."""
    world = api.COMM_WORLD
    here = world.Split_type(api.COMM_TYPE_SHARED)
    single = here.size == world.size
    # As mpiexec was told to find this machine: its own name for itself need not resolve elsewhere.
    name = os.environ.get("PMI_HOSTNAME") or socket.gethostname()
    address, port = world.bcast(("127.0.0.1" if single else name, free_port()))
    found = {
        "RANK": world.rank,
        "WORLD_SIZE": world.size,
        "LOCAL_RANK": here.rank,
        "LOCAL_WORLD_SIZE": here.size,
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
    }
    here.Free()
    return {name: str(value) for name, value in found.items()}


def _plain_line() -> list[str] | None:
    """This process's command line without its own words; None where they do not stand as `command` writes them."""
    words, ours = sys.orig_argv, len(sys.orig_argv) - len(sys.argv) + 1
    return [*words[: ours - 2], *words[ours + 1 :]] if words[ours - 2] == "-m" else None


def _run(backend: str, script: str, arguments: list[str], line: list[str] | None, under_mpi: bool) -> None:
    """The script in this process."""
    from autotune.runtime.entry import as_main, prelude

    def before() -> None:
        if under_mpi:
            _start_mpi()
        prelude.prepare(backend)

    process = os.getpid()
    as_main.pose(script, arguments, line)
    try:
        code = as_main.ended(before) or as_main.run(script)
    except SystemExit as left:
        if not under_mpi:
            raise  # Python itself reads what it was given
        code = as_main.exit_status(left.code)
        _said(left.code)
    if not under_mpi:
        _end(code)
    elif os.getpid() != process:
        _end_child(code)
    elif code:
        _end_all(code)


def _start_mpi() -> None:
    from autotune.runtime import mpi

    os.environ.setdefault("MPIR_CVAR_SUPPRESS_ABORT_MESSAGE", "1")  # the failing rank says what is wrong
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # mpiexec reads it through a pipe
    os.environ.update(torchrun_variables(mpi.start()))


def _said(code: Any) -> int:
    """Python's own reading of what ``sys.exit`` was given."""
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr or sys.__stderr__)
    return 1


def _end(code: int) -> None:
    """Leave as ``subprocess`` counts it: with an exit status, or by SIGINT where ``code`` is its negative number."""
    if code == -signal.SIGINT:
        _interrupt()
    if code:
        sys.exit(code)


def _end_all(code: int) -> None:
    """A failure under MPI skips the orderly end, which would wait for the other ranks."""
    from autotune.runtime import mpi
    from autotune.runtime.entry import as_main

    as_main.flush()
    if code == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # MPI's own last words; the rank has said what is wrong
    mpi.abort(code)
    os._exit(code)


def _end_child(code: int) -> None:
    """The orderly end of a process that the script forked, but for MPI's, which is the parent's."""
    import atexit
    import threading

    from autotune.runtime.entry import as_main

    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    as_main.flush()
    os._exit(code & 0xFF)


def _interrupt() -> None:
    """Python kills itself by SIGINT at its very end, after an interrupt that it has printed. This one it was told."""
    hook = sys.excepthook

    def silent(*_: object) -> None:
        sys.excepthook = hook

    sys.excepthook = silent
    raise KeyboardInterrupt


if __name__ == "__main__":
    main(sys.argv[1:])
