"""The command line that starts training on this machine."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.core.backends import BACKENDS, MPIEXEC
from autotune.core.settings import Settings

ENTRY = "autotune.runtime.launched"
"""Module that runs a script on a backend which PyTorch does not know by itself."""


def command(
    settings: Settings,
    script: str,
    args: Sequence[str],
    python: str,
    *,
    binder: Sequence[str] = (),
    mpiexec: str = "mpiexec",
) -> list[str]:
    """Argument list that starts ``script`` with ``args`` under the interpreter ``python``.

    The number of processes is always written out: ``auto`` and ``cpu`` count the host's CPUs and not the budget.

    Args:
        settings: processes and backend count.
        script: the training script.
        args: its own arguments.
        python: the interpreter.
        binder: what binds each process: it stands before the program, see `autotune.launch.binding`.
        mpiexec: MPI's launcher, for the backends that need it.
    """
    if settings.processes == 1:
        return [*binder, python, script, *args]
    row = BACKENDS[settings.backend or "gloo"]
    entry = ["-m", ENTRY, row.name] if row.module else []
    if row.launcher == MPIEXEC:
        # Forking needs no host name that resolves and no ssh.
        start = [mpiexec, "-launcher", "fork", "-n", str(settings.processes), *binder, python]
    else:
        start = [python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={settings.processes}"]
        # torchrun starts scripts unbuffered by itself, other programs as they are
        start += ["--no-python", *binder, python, "-u"] if binder else []
    return [*start, *entry, script, *args]
