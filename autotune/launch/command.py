"""The command line that starts training on this machine."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.core.backends import BACKENDS, MPIEXEC
from autotune.core.cluster import Cluster, endpoint
from autotune.core.settings import Settings
from probes.facts import Route

ENTRY = "autotune.runtime.entry"
"""Module that runs a script on a backend which PyTorch does not know by itself, or watched."""

ALONE = ["--standalone", "--local-addr=127.0.0.1"]
"""torchrun would have the processes of one machine meet under its host name, which need not resolve."""


def command(
    settings: Settings,
    script: str,
    args: Sequence[str],
    python: str,
    *,
    binder: Sequence[str] = (),
    mpiexec: str = "mpiexec",
    cluster: Cluster | None = None,
    route: Route | None = None,
    watched: bool = False,
) -> list[str]:
    """Argument list that starts ``script`` with ``args`` under the interpreter ``python``.

    The number of processes is always written out: ``auto`` and ``cpu`` count the host's CPUs and not the budget.

    Args:
        settings: processes (of each machine) and backend count.
        script: the training script.
        args: its own arguments.
        python: the interpreter.
        binder: what binds each process: it stands before the program, see `autotune.launch.binding`.
        mpiexec: MPI's launcher, for the backends that need it.
        cluster: several machines; this one alone where None.
        route: the way to where they meet.
        watched: a process that takes no optimizer step any more is to end, whatever the script knows of this project.
    """
    row = BACKENDS[settings.backend or "gloo"]
    entry = ["-m", ENTRY, row.name] if row.module or watched else []
    if settings.processes == 1 and cluster is None:
        return [*binder, python, *entry, script, *args]
    if row.launcher == MPIEXEC:
        start = [mpiexec, *_spread(settings.processes, cluster, route), *binder, python]
    else:
        meeting = ALONE if cluster is None else _meeting(cluster, route)
        start = [python, "-m", "torch.distributed.run", *meeting, f"--nproc-per-node={settings.processes}"]
        # torchrun starts scripts unbuffered by itself, other programs as they are
        start += ["--no-python", *binder, python, "-u"] if binder else []
    return [*start, *entry, script, *args]


def _spread(processes: int, cluster: Cluster | None, route: Route | None) -> list[str]:
    """mpiexec's words for ``processes`` on each machine, and for where the others find this one: its own name need not
    resolve there."""
    if cluster is None:
        # Forking needs no host name that resolves and no ssh.
        return ["-launcher", "fork", "-n", str(processes)]
    here = ["-localhost", route.address] if route is not None else []
    return [*here, "-hosts", ",".join(cluster.hosts), "-ppn", str(processes), "-n", str(processes * cluster.nodes)]


def _meeting(cluster: Cluster, route: Route | None) -> list[str]:
    """torchrun's words for where the machines meet. What it would guess from this machine's own name is said instead:
    a name need not resolve."""
    words = [f"--nnodes={cluster.nodes}", "--rdzv-backend=c10d"]
    words += [f"--rdzv-endpoint={endpoint(cluster.host, cluster.port)}", f"--rdzv-id={cluster.job}"]
    if route is not None:
        words += [f"--rdzv-conf=is_host={int(route.here)}", f"--local-addr={route.address}"]
    return words
