"""The command line that starts training on this machine, alone or with the other machines of a cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.errors import UsageError
from autotune.knobs.affinity import AffinityPlan, cpu_list
from autotune.knobs.backend import BACKENDS, MPIEXEC
from autotune.knobs.settings import Settings
from autotune.probes.facts import Route

ENTRY = "autotune.runtime.entry"
"""Module that runs a script on a backend that PyTorch does not have, or with settings applied to it."""
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
        hosts: names of the machines, for mpiexec, which starts all of them; empty for torchrun, which starts on each.
    """

    nodes: int
    host: str = ""
    port: int = PORT
    hosts: tuple[str, ...] = ()


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
    applies: bool = False,
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
        applies: start through our entry, which applies settings to scripts that do not use this project.
    """
    row = BACKENDS[settings.backend or "gloo"]
    entry = ["-m", ENTRY, row.name] if row.module or applies else []
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
    """Return the same with ``taskset``, for a machine without this package."""
    tools = [["taskset", "-c", cpu_list(affinity.cpus)] for affinity in plan.affinities]
    if len(tools) < 2:
        return tools[0] if tools else []
    cases = " ".join(f'{rank}) set -- {" ".join(tool)} "$@";;' for rank, tool in enumerate(tools))
    return ["sh", "-c", f'case "${{LOCAL_RANK:-$MPI_LOCALRANKID}}" in {cases} esac; exec "$@"', "sh"]


def from_options(nodes: int | None, endpoint: str | None, hosts: str | None) -> Cluster | None:
    """Return the cluster that the command line describes; None for one machine.

    Args:
        nodes: how many machines.
        endpoint: ``HOST[:PORT]`` of the rendezvous.
        hosts: names of the machines with commas between them, for mpiexec.

    Raises:
        UsageError: the options contradict each other.
    """
    if hosts is not None:
        names = tuple(name.strip() for name in hosts.split(","))
        if not all(names) or (nodes is not None and nodes != len(names)):
            raise UsageError(f"--hosts {hosts}: give one name for each of the machines, with commas between them")
        return Cluster(len(names), hosts=names) if len(names) > 1 else None
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


def check_slurm(environment: Mapping[str, str], cluster: Cluster | None = None, *, tunes: bool = False) -> None:
    """Check that a Slurm step starts one task on each machine, and that ``cluster`` says where the machines meet.

    Args:
        environment: variables; without Slurm's all is well.
        cluster: what the user's options describe.
        tunes: the task tunes, which works on one machine only.

    Raises:
        UsageError: with the line that starts it right.
    """
    nodes = environment.get("SLURM_STEP_NUM_NODES", "1")
    tasks = environment.get("SLURM_STEP_NUM_TASKS", nodes)
    if tunes and tasks != "1":
        raise UsageError(f"srun started {tasks} tasks; tune works on one machine: srun --ntasks=1 autotune tune ...")
    if tasks != nodes:
        place = "one machine" if nodes == "1" else f"{nodes} machines"
        raise UsageError(
            f"srun started {tasks} tasks on {place}; one on each starts its own processes:"
            " srun --ntasks-per-node=1 autotune run ..."
        )
    if nodes != "1" and cluster is None:
        raise UsageError(f"srun started {nodes} machines: give --nnodes {nodes} and --rdzv-endpoint HOST:{PORT}")


def _split(endpoint: str) -> tuple[str, int]:
    """Return ``HOST:PORT``, ``HOST`` or ``[IPv6]:PORT``."""
    found = re.fullmatch(r"(\[[^\]]+\]|[^:]+)(?::(\d{1,5}))?", endpoint)
    if found is None or int(found[2] or PORT) > 65535:
        raise UsageError(f"--rdzv-endpoint {endpoint}: not HOST:PORT")
    return found[1].strip("[]"), int(found[2] or PORT)
