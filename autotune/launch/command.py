"""The command line and the environment that start training on this machine, alone or with others of a cluster.

Variables that the user set are kept and reported.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.errors import UsageError
from autotune.knobs.backend import BACKENDS, MPIEXEC
from autotune.knobs.binding import AffinityPlan, cpu_list
from autotune.knobs.settings import Settings
from autotune.knobs.threads import OMP_WAIT_POLICY, own_waiting
from autotune.probes.facts import Inventory, Route

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
JOB_VARIABLES = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "NODE_RANK"),
    *("ROLE_RANK", "ROLE_NAME", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "AUTOTUNE_BINDING"),
    *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS"),
)
JOB_PREFIXES = ("TORCHELASTIC_", "ACCELERATE_")
MPI_VARIABLES = ("MPI_LOCALRANKID", "MPI_LOCALNRANKS", "HYDRA_HOST_FILE")  # the command line names the machines
MPI_PREFIXES = ("OMPI_", "PMI_", "PMIX_", "HYDI_", "MV2_COMM_WORLD_")
"""Variables of a surrounding job: a trial, or an mpiexec, that inherits them takes itself for one of its ranks."""
INHERITED = ("LD_PRELOAD", OMP_WAIT_POLICY)
"""Variables that libraries read when they are loaded: a fork cannot change what they say."""
_ALLOCATOR = re.compile(r"(jemalloc|tcmalloc|mimalloc)")
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


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
    applies: bool = False,
    torchrun: str = TORCHRUN_MODULE,
) -> list[str]:
    """Return the argument list that starts ``script`` with ``args`` under the interpreter ``python``.

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
        # Forking needs no host name that resolves and no ssh.
        start = [mpiexec, "-launcher", "fork", "-n", str(settings.processes), *binder, python]
    else:
        rendezvous = STANDALONE if cluster is None else _rendezvous(cluster, route)
        start = [python, "-m", torchrun, *rendezvous, f"--nproc-per-node={settings.processes}"]
        # torchrun starts scripts unbuffered, but not other programs
        start += ["--no-python", *binder, python, "-u"] if binder else []
    return [*start, *entry, script, *args]


def _rendezvous(cluster: Cluster, route: Route | None) -> list[str]:
    """Return options of torchrun's rendezvous. Without them it asks for the host's name, which need not resolve."""
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


# Environment ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeptVariable:
    """A variable that the user set. It stays, and the tuned value is not used."""

    name: str
    value: str
    tuned: str

    @property
    def note(self) -> str:
        """One line for people."""
        return f"{self.name}={self.value} is yours and stays; tuned would be {self.tuned}. Unset it to use the profile."


@dataclass(frozen=True)
class Environment:
    """Variables to add to the base environment, those of the user that stay, and knobs that could not be applied."""

    set: dict[str, str]
    kept: tuple[KeptVariable, ...] = ()
    not_applied: tuple[tuple[str, str], ...] = ()
    """``(knob, reason)``."""


def environment(
    settings: Settings,
    inventory: Inventory,
    base_env: Mapping[str, str],
    *,
    interface: str | None = None,
) -> Environment:
    """Return the variables that each training process on this machine starts with.

    Args:
        settings: the tuned settings.
        inventory: this machine.
        base_env: the user's environment.
        interface: the network interface that leads to the other machines; the loopback if None.
    """
    # torchrun would set this to 1; one process sets its threads itself.
    wanted = {"OMP_NUM_THREADS": str(settings.threads)} if settings.processes > 1 else {}
    wanted.update(_interface(settings, inventory, interface))
    waiting, others = _waiting(settings, base_env)
    wanted.update(waiting)
    chosen = {name: value for name, value in wanted.items() if name not in base_env}
    kept = [
        KeptVariable(name, base_env[name], value)
        for name, value in wanted.items()
        if base_env.get(name, value) != value
    ]
    kept += others
    library = preload(settings.allocator, inventory, base_env.get("LD_PRELOAD", ""))
    if library.value is not None:
        chosen["LD_PRELOAD"] = library.value
    if library.users:
        kept.append(KeptVariable("LD_PRELOAD", library.users, settings.allocator))
    missing = (("allocator", library.reason),) if library.reason else ()
    return Environment(chosen, tuple(kept), missing)


def scrub(env: Mapping[str, str]) -> dict[str, str]:
    """Return ``env`` without the variables of a surrounding job. Devices, library paths and proxies stay."""
    return _without(env, (*JOB_VARIABLES, *MPI_VARIABLES), (*JOB_PREFIXES, *MPI_PREFIXES))


def without_mpi_job(settings: Settings, env: Mapping[str, str]) -> dict[str, str]:
    """Return the user's environment as it is; without a surrounding MPI job's variables if mpiexec is started in it."""
    if settings.processes > 1 and settings.backend is not None and BACKENDS[settings.backend].launcher == MPIEXEC:
        return _without(env, MPI_VARIABLES, MPI_PREFIXES)
    return dict(env)


def _without(env: Mapping[str, str], names: Sequence[str], prefixes: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name not in names and not name.startswith(prefixes)}


def own_threads(settings: Settings, environment: Mapping[str, str]) -> tuple[Settings, tuple[str, ...]]:
    """Return ``settings`` with the user's OMP_NUM_THREADS. torchrun's own default of 1 is not the user's word."""
    try:
        threads = int(environment.get("OMP_NUM_THREADS", ""))
    except ValueError:
        return settings, ()
    by_torchrun = threads == 1 and "TORCHELASTIC_RUN_ID" in environment
    if threads < 1 or threads == settings.threads or by_torchrun:
        return settings, ()
    return settings.but(threads=threads), (
        f"OMP_NUM_THREADS={threads} is kept; the profile would use {settings.threads} threads",
    )


def _waiting(settings: Settings, base_env: Mapping[str, str]) -> tuple[dict[str, str], list[KeptVariable]]:
    """Return how OpenMP's threads wait, and the user's own variable that decides it otherwise."""
    policy = settings.omp_wait_policy
    if policy == "default":
        return {}, []
    own = own_waiting(policy, base_env)
    if own is None:
        return ({} if OMP_WAIT_POLICY in base_env else {OMP_WAIT_POLICY: policy}), []
    return {}, [KeptVariable(own, base_env[own], policy if own == OMP_WAIT_POLICY else f"{OMP_WAIT_POLICY}={policy}")]


def _interface(settings: Settings, inventory: Inventory, interface: str | None) -> dict[str, str]:
    """Return the variable that names the network interface: ``interface``, or the loopback if None."""
    backend = settings.backend or ("gloo" if interface and not inventory.gpus else None)
    variable = BACKENDS[backend].interface_variable if backend else None
    return {variable: interface or LOOPBACK} if variable else {}


@dataclass(frozen=True)
class Preload:
    """The new ``LD_PRELOAD``, or why it stays.

    Attributes:
        value: the variable's new value; None leaves it alone.
        users: the user's own value if it already holds another allocator.
        reason: why the wanted allocator is not used; empty if it is used, or if none is wanted.
    """

    value: str | None = None
    users: str = ""
    reason: str = ""


def preload(name: str, inventory: Inventory, present: str) -> Preload:
    """Return ``LD_PRELOAD`` for allocator ``name``. What is ``present`` in it stays.

    A profile holds a word, never a path. The library is the one that the probes of this machine found; they list only
    libraries that nobody but root can change.
    """
    if _ALLOCATOR.search(present):
        return Preload() if name in present else Preload(users=present)
    if name == "default":
        return Preload()
    if inventory.software.platform != "linux":
        return Preload(reason=f"{name} is preloaded on Linux only")
    library = next((found.library for found in inventory.software.allocators if found.name == name), None)
    if library is None:
        return Preload(reason=f"{name} is not installed here")
    return Preload(value=":".join(part for part in (present, library) if part))
