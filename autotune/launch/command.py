"""The command line that starts training on this machine, alone or with the other machines of a cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.errors import UsageError
from autotune.knobs.affinity import AffinityPlan, cpu_list
from autotune.knobs.backend import BACKENDS, MPIEXEC
from autotune.knobs.knob import Affinity
from autotune.knobs.settings import Settings
from autotune.probes.facts import Route

ENTRY = "autotune.runtime.entry"
"""Module that runs a script on a backend that PyTorch does not have, or under the watchdog."""
STARTER = "autotune.knobs.binding"
"""Module that binds a process before it becomes the script."""

TORCHRUN_MODULE, OUR_TORCHRUN = "torch.distributed.run", "autotune.runtime.entry.torchrun"
"""PyTorch's own, and one that leaves with the exit status of the process that failed."""
STANDALONE = ["--standalone", "--local-addr=127.0.0.1"]
"""By default torchrun uses the host name as rendezvous, which need not resolve."""
PORT = 29400
"""torchrun's own default for its rendezvous."""


@dataclass(frozen=True)
class Cluster:
    """The machines of one job.

    Attributes:
        nodes: how many, this one included.
        host, port: torchrun's rendezvous; the host is one of the machines.
    """

    nodes: int
    host: str
    port: int = PORT


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
        script: the training script; ``-m`` if ``args`` begin with a module.
        args: its own arguments.
        python: the interpreter.
        binder: the command in front of the program that binds each process, see `starter` and `system_tools`.
        mpiexec: MPI's launcher, for the backends that need it.
        cluster: several machines; this one alone if None.
        route: from this machine to the rendezvous.
        torchrun: the module that starts several processes.
        watched: start through our entry, which watches or tunes scripts that do not use this project.
    """
    row = BACKENDS[settings.backend or "gloo"]
    entry = ["-m", ENTRY, row.name] if row.module or watched else []
    if settings.processes == 1 and cluster is None:
        return [*binder, python, *entry, script, *args]
    if row.launcher == MPIEXEC:
        # Forking needs no host name that resolves and no ssh.
        start = [mpiexec, "-launcher", "fork", "-n", str(settings.processes), *binder, python]
    else:
        rendezvous = STANDALONE if cluster is None else _rendezvous(cluster, route)
        start = [python, "-m", torchrun, *rendezvous, f"--nproc-per-node={settings.processes}"]
        # torchrun starts scripts unbuffered, but not other programs
        start += ["--no-python", *binder, python, "-u"] if binder else []
    return [*start, *entry, script, *args]


def _rendezvous(cluster: Cluster, route: Route | None) -> list[str]:
    """Options of torchrun's rendezvous. They include what torchrun would derive from the host name, which need not
    resolve."""
    host = f"[{cluster.host}]" if ":" in cluster.host else cluster.host
    options = [f"--nnodes={cluster.nodes}", "--rdzv-backend=c10d"]
    options += [f"--rdzv-endpoint={host}:{cluster.port}", "--rdzv-id=autotune"]
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


def from_options(nodes: int | None, endpoint: str | None) -> Cluster | None:
    """Return the cluster that the command line describes; None for one machine.

    Args:
        nodes: how many machines.
        endpoint: ``HOST[:PORT]`` of the rendezvous.

    Raises:
        UsageError: the options contradict each other.
    """
    if nodes is not None and nodes < 1:
        raise UsageError(f"--nnodes {nodes}: must be at least 1")
    if nodes is None or nodes == 1:
        if endpoint is not None:
            raise UsageError("--rdzv-endpoint: say also how many machines meet there, with --nnodes")
        return None
    if endpoint is None:
        raise UsageError(
            f"--nnodes {nodes}: say where the machines meet: --rdzv-endpoint HOST:PORT (one of them, the same on all)"
        )
    host, port = _split(endpoint)
    return Cluster(nodes, host, port)


def check_slurm(environment: Mapping[str, str]) -> None:
    """Raise `UsageError` in a Slurm step that starts several tasks on a machine: each would take all of it."""
    nodes = environment.get("SLURM_STEP_NUM_NODES", "1")
    tasks = environment.get("SLURM_STEP_NUM_TASKS", nodes)
    if tasks != nodes:
        raise UsageError(
            f"srun started {tasks} tasks on {nodes} machine(s); one on each starts its own processes:"
            " srun --ntasks-per-node=1 autotune ..."
        )


def _split(endpoint: str) -> tuple[str, int]:
    """Return ``HOST:PORT``, ``HOST`` or ``[IPv6]:PORT``."""
    found = re.fullmatch(r"(\[[^\]]+\]|[^:]+)(?::(\d{1,5}))?", endpoint)
    if found is None or int(found[2] or PORT) > 65535:
        raise UsageError(f"--rdzv-endpoint {endpoint}: not HOST:PORT")
    return found[1].strip("[]"), int(found[2] or PORT)
