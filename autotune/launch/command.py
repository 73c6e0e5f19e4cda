"""The command line that starts training on this machine."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.knobs.affinity import Affinity, AffinityPlan, cpu_list
from autotune.knobs.backend import BACKENDS, MPIEXEC
from autotune.knobs.settings import Settings
from autotune.launch.cluster import Cluster, endpoint
from autotune.probes.facts import Route

ENTRY = "autotune.runtime.entry"
"""Module that runs a script on a backend that PyTorch does not have, or under the watchdog."""
STARTER = "autotune.knobs.cpu_binding"
"""Module that binds a process before it becomes the script."""

TORCHRUN_MODULE, OUR_TORCHRUN = "torch.distributed.run", "autotune.launch.torchrun"
"""PyTorch's own, and one that leaves with the exit status of the process that failed."""
STANDALONE = ["--standalone", "--local-addr=127.0.0.1"]
"""By default torchrun uses the host name as rendezvous, which need not resolve."""


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
    torchrun: str = TORCHRUN_MODULE,
) -> list[str]:
    """Argument list that starts ``script`` with ``args`` under the interpreter ``python``.

    The number of processes is always written out: ``auto`` and ``cpu`` count the host's CPUs and not the budget.

    Args:
        settings: processes (of each machine) and backend count.
        script: the training script; ``-m`` where ``args`` begin with a module.
        args: its own arguments.
        python: the interpreter.
        binder: the command in front of the program that binds each process, see `starter` and `system_tools`.
        mpiexec: MPI's launcher, for the backends that need it.
        cluster: several machines; this one alone where None.
        route: from this machine to the rendezvous.
        torchrun: the module that starts several processes.
        watched: start through our entry, which watches or tunes scripts that do not use this project.
    """
    row = BACKENDS[settings.backend or "gloo"]
    entry = ["-m", ENTRY, row.name] if row.module or watched else []
    if settings.processes == 1 and cluster is None:
        return [*binder, python, *entry, script, *args]
    if row.launcher == MPIEXEC:
        start = [mpiexec, *_mpiexec_arguments(settings.processes, cluster, route), *binder, python]
    else:
        rendezvous = STANDALONE if cluster is None else _rendezvous(cluster, route)
        start = [python, "-m", torchrun, *rendezvous, f"--nproc-per-node={settings.processes}"]
        # torchrun starts scripts unbuffered, but not other programs
        start += ["--no-python", *binder, python, "-u"] if binder else []
    return [*start, *entry, script, *args]


def _mpiexec_arguments(processes: int, cluster: Cluster | None, route: Route | None) -> list[str]:
    """Options of mpiexec: ``processes`` on each machine, and this machine's address: its name need not resolve."""
    if cluster is None:
        # Forking needs no host name that resolves and no ssh.
        return ["-launcher", "fork", "-n", str(processes)]
    here = ["-localhost", route.address] if route is not None else []
    return [*here, "-hosts", ",".join(cluster.hosts), "-ppn", str(processes), "-n", str(processes * cluster.nodes)]


def _rendezvous(cluster: Cluster, route: Route | None) -> list[str]:
    """Options of torchrun's rendezvous. They include what torchrun would derive from the host name, which need not
    resolve."""
    options = [f"--nnodes={cluster.nodes}", "--rdzv-backend=c10d"]
    options += [f"--rdzv-endpoint={endpoint(cluster.host, cluster.port)}", f"--rdzv-id={cluster.job}"]
    if route is not None:
        options += [f"--rdzv-conf=is_host={int(route.here)}", f"--local-addr={route.address}"]
    return options


def starter(plan: AffinityPlan, python: str) -> list[str]:
    """Return this package's own command that binds a process; empty if ``plan`` binds nothing."""
    return [python, "-m", STARTER] if plan.affinities else []


def system_tools(plan: AffinityPlan) -> list[str]:
    """Return the same with ``taskset`` and ``numactl``, for a machine without this package."""
    tools = [_tool(affinity) for affinity in plan.affinities]
    if len(tools) < 2:
        return tools[0] if tools else []
    cases = " ".join(f'{rank}) set -- {" ".join(tool)} "$@";;' for rank, tool in enumerate(tools))
    return ["sh", "-c", f'case "${{LOCAL_RANK:-$MPI_LOCALRANKID}}" in {cases} esac; exec "$@"', "sh"]


def _tool(affinity: Affinity) -> list[str]:
    if not affinity.memory:
        return ["taskset", "-c", cpu_list(affinity.cpus)]
    return ["numactl", f"--physcpubind={cpu_list(affinity.cpus)}", f"--membind={cpu_list(affinity.memory)}"]
