"""Run an unchanged training script on a backend that its ``init_process_group`` does not name, or with settings.

    mpiexec -n 2 python -m autotune.scripts.entry mpi train.py ARGS
    torchrun --nproc-per-node=2 -m autotune.scripts.entry ccl train.py ARGS

`autotune run` uses this for several processes, and for MPI; one process it starts directly. Without MPI this process
becomes just what ``python train.py ARGS`` starts (`startup`). Under mpiexec the script finds the variables that
torchrun would set, and an error ends all processes: a rank that only exits would keep the others waiting for ever.
Python ends MPI before it reports how a script ended. So under mpiexec this process runs the script itself
(`as_main`).
"""

from __future__ import annotations

import functools
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

from autotune.knobs.backend import BACKENDS, MPIEXEC
from autotune.scripts.entry import as_main, startup
from autotune.scripts.entry.torchrun import free_port


def main(arguments: list[str]) -> None:
    """Run ``[backend, script, *the script's arguments]``."""
    backend, script = arguments[:2]
    under_mpi = BACKENDS[backend].launcher == MPIEXEC
    line = _plain_line()
    if line and not under_mpi and startup.works():
        startup.mark(os.environ, backend)
        os.execv(sys.executable, line)
    run = functools.partial(as_main.run, script, arguments[1:], line)
    if under_mpi:
        _run_as_rank(backend, run)
    else:
        startup.prepare(backend)
        run()


def torchrun_variables(api: Any) -> dict[str, str]:
    """Return what torchrun would set: ranks, sizes, and where to meet."""
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
    """Return this process's command line without its own arguments; None if they are not as `command` writes them."""
    words, ours = sys.orig_argv, len(sys.orig_argv) - len(sys.argv) + 1
    return [*words[: ours - 2], *words[ours + 1 :]] if words[ours - 2] == "-m" else None


def _run_as_rank(backend: str, run: Callable[[], None]) -> None:
    """Run the script as a rank of MPI. An orderly end is Python's own; any other ends all ranks at once."""
    from autotune.runtime import mpi

    def work() -> None:
        os.environ.update(torchrun_variables(mpi.start()))
        startup.prepare(backend)
        run()

    process = os.getpid()
    os.environ.setdefault("MPIR_CVAR_SUPPRESS_ABORT_MESSAGE", "1")  # the failing rank reports what is wrong
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # mpiexec reads it through a pipe
    _error, code = as_main.ended(work)
    if os.getpid() != process:  # forked by the script: MPI is its parent's
        as_main.flush()
        os._exit(code)
    if code:
        as_main.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # hides MPI's own message
        mpi.abort(code)
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
