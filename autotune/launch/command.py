"""The command line that starts training on this machine."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.core.backends import BACKENDS, MPIEXEC
from autotune.core.settings import Settings

ENTRY = "autotune.runtime.launched"
"""Module that runs a script on a backend which PyTorch does not know by itself."""


def command(settings: Settings, script: str, args: Sequence[str], python: str, mpiexec: str = "mpiexec") -> list[str]:
    """Argument list that starts ``script`` with ``args`` under the interpreter ``python``.

    The number of processes is always written out: ``auto`` and ``cpu`` count the host's CPUs and not the budget.

    Args:
        settings: processes and backend count.
        script: the training script.
        args: its own arguments.
        python: the interpreter.
        mpiexec: MPI's launcher, for the backends that need it.
    """
    if settings.processes == 1:
        return [python, script, *args]
    row = BACKENDS[settings.backend or "gloo"]
    if row.launcher == MPIEXEC:
        # Forking needs no host name that resolves and no ssh.
        start = [mpiexec, "-launcher", "fork", "-n", str(settings.processes), python, "-m"]
    else:
        start = [python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={settings.processes}"]
        start += ["-m"] if row.module else []
    return [*start, *([ENTRY, row.name] if row.module else []), script, *args]
