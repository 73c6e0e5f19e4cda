"""The command line that starts training on this machine."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.core.errors import LaunchError
from autotune.core.settings import Settings
from autotune.launch.backends import BACKENDS


def command(settings: Settings, script: str, args: Sequence[str], python: str, binder: Sequence[str] = ()) -> list[str]:
    """Argument list that starts ``script`` with ``args`` under the interpreter ``python``.

    ``binder`` is what binds each process: it stands before the program, see `autotune.launch.binding`.

    The number of processes is always written out: ``auto`` and ``cpu`` count the host's CPUs and not the budget.

    Raises:
        LaunchError: no launcher for the backend yet.
    """
    if settings.processes == 1:
        return [*binder, python, script, *args]
    launcher = BACKENDS[settings.backend or "gloo"].launcher
    if launcher is None:
        raise LaunchError(f"backend {settings.backend}: cannot be started yet. Use gloo or nccl: --fix backend=gloo")
    count = f"--nproc-per-node={settings.processes}"
    # torchrun starts scripts unbuffered by itself, other programs as they are
    program = ["--no-python", *binder, python, "-u"] if binder else []
    return [python, "-m", launcher, "--standalone", count, *program, script, *args]
