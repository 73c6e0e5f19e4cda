"""Run an unchanged training script on a backend that its ``init_process_group`` does not name, or watched.

    mpiexec -n 2 python -m autotune.runtime.launched mpi train.py ARGS
    torchrun --nproc-per-node=2 -m autotune.runtime.launched ccl train.py ARGS

Under mpiexec the script finds the variables that torchrun would set. An error ends all processes: a rank that merely
left would keep the others waiting for ever.
"""

from __future__ import annotations

import functools
import os
import socket
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from autotune.core.backends import BACKENDS, MPIEXEC
from autotune.runtime import mpi, processes, watchdog


def main(arguments: list[str]) -> None:
    """``[backend, script, *the script's arguments]``."""
    backend, script, *_rest = arguments
    under_mpi = BACKENDS[backend].launcher == MPIEXEC
    try:
        name = processes.registered(backend)
        if under_mpi:
            os.environ.setdefault("MPIR_CVAR_SUPPRESS_ABORT_MESSAGE", "1")  # the failing rank says what is wrong
            sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # mpiexec reads it through a pipe
            os.environ.update(places(mpi.start()))
        if BACKENDS[backend].module is not None:
            put_in_place(name)
        seconds = watchdog.given(os.environ)
        if seconds is not None:
            watchdog.watch(seconds)
        run_as_main(script, arguments[1:])
    except SystemExit as left:
        _end(_said(left.code), under_mpi)
    except BaseException as error:
        own = error.__traceback__
        while own is not None and own.tb_frame.f_code.co_filename == __file__:
            own = own.tb_next
        sys.excepthook(type(error), error.with_traceback(own), own)
        _end(130 if isinstance(error, KeyboardInterrupt) else 1, under_mpi)


def places(api: Any) -> dict[str, str]:
    """What torchrun would say: ranks, sizes, and where to meet."""
    world = api.COMM_WORLD
    here = world.Split_type(api.COMM_TYPE_SHARED)
    single = here.size == world.size
    # As mpiexec was told to find this machine: its own name for itself need not resolve elsewhere.
    name = os.environ.get("PMI_HOSTNAME") or socket.gethostname()
    address, port = world.bcast(("127.0.0.1" if single else name, _free_port()))
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


def put_in_place(name: str) -> None:
    """Let ``init_process_group`` start backend ``name``, whatever the script asks for."""
    original: Callable[..., Any] = distributed_c10d.init_process_group

    @functools.wraps(original)
    def init_process_group(backend: str | None = None, *positional: Any, **options: Any) -> Any:
        options.pop("pg_options", None)  # they are the replaced backend's
        options.pop("device_id", None)
        return original(name, *positional, **options)

    modules: tuple[Any, ...] = (dist, distributed_c10d)
    for module in modules:
        module.init_process_group = init_process_group


def run_as_main(script: str, arguments: list[str]) -> None:
    """Run a file as Python itself would: as ``__main__``, its folder first on the path; workers find its functions."""
    sys.argv = arguments
    sys.path[0] = str(Path(script).resolve().parent)
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=script, __builtins__=__builtins__)
    sys.modules["__main__"] = module
    exec(compile(Path(script).read_bytes(), script, "exec"), module.__dict__)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _said(code: Any) -> int:
    """Python's own reading of what ``sys.exit`` was given."""
    if code is None or isinstance(code, int):
        return code or 0
    print(code, file=sys.stderr)
    return 1


def _end(code: int, at_once: bool) -> None:
    """Leave with ``code``. Under MPI a failure skips the orderly end, which would wait for the other ranks."""
    if code and at_once:
        sys.stdout.flush()
        sys.stderr.flush()
        mpi.abort(code)
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
