"""The command line and the environment that start training on this machine, alone or with others.

Variables that the user set are kept and reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autotune.knobs.backend import BACKENDS, LOOPBACK, MPIEXEC
from autotune.knobs.binding import AffinityPlan, cpu_list
from autotune.knobs.knob import Start, Variables
from autotune.knobs.settings import KNOBS, Settings
from autotune.probes.facts import Inventory

ENTRY = "autotune.scripts.entry"
"""Module that runs a script on a backend that PyTorch does not have, or with settings applied to it."""
BINDER = ("-m", "autotune.knobs.binding")
"""Runs the module that binds a process before it becomes the script."""

TORCHRUN_MODULE, OUR_TORCHRUN = "torch.distributed.run", "autotune.scripts.entry.torchrun"
"""PyTorch's own, and one that leaves with the exit status of the process that failed."""
STANDALONE = ("--standalone", "--local-addr=127.0.0.1")
"""By default torchrun uses the host name as rendezvous, which need not resolve."""
JOB_VARIABLES = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "NODE_RANK"),
    *("ROLE_RANK", "ROLE_NAME", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "AUTOTUNE_BINDING"),
    *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS"),
)
JOB_PREFIXES = ("TORCHELASTIC_", "ACCELERATE_")
MPI_VARIABLES = ("MPI_LOCALRANKID", "MPI_LOCALNRANKS", "HYDRA_HOST_FILE")  # the command line names the machines
MPI_PREFIXES = ("OMPI_", "PMI_", "PMIX_", "HYDI_", "MV2_COMM_WORLD_")
"""Variables of a surrounding job: a trial, or an mpiexec, that inherits them takes itself for one of its ranks."""


def command(
    settings: Settings,
    script: str,
    args: Sequence[str],
    python: str,
    *,
    binder: Sequence[str] = (),
    mpiexec: str = "mpiexec",
    machines: int = 1,
    options: Sequence[str] = (),
    applies: bool = False,
    torchrun: str = TORCHRUN_MODULE,
) -> list[str]:
    """Return the argument list that starts ``script`` (``-m`` before a module) with ``args`` under ``python``.

    The number of processes is always written out: ``auto`` and ``cpu`` count the host's CPUs and not the budget. Each
    of them is bound by ``binder`` (`BINDER` or `system_tools`) and, if our entry ``applies`` the settings, starts
    through it. Several are started by ``mpiexec`` or the module ``torchrun``, with the ``options`` of the user's own
    line; so many ``machines``, this one among them, train together.
    """
    row = BACKENDS[settings.backend or "gloo"]
    entry = ["-m", ENTRY, row.name] if row.module or applies else []
    if settings.processes == 1 and machines == 1:
        return [*binder, python, *entry, script, *args]
    if row.launcher == MPIEXEC:
        # Forking needs no host name that resolves and no ssh.
        start = [mpiexec, "-launcher", "fork", "-n", str(settings.processes), *binder, python]
    else:
        start = [python, "-m", torchrun, *(options or STANDALONE), f"--nproc-per-node={settings.processes}"]
        # torchrun starts scripts unbuffered, but not other programs
        start += ["--no-python", *binder, python, "-u"] if binder else []
    return [*start, *entry, script, *args]


def system_tools(plan: AffinityPlan) -> list[str]:
    """Return the ``taskset`` in front of a program that binds each process as ``plan`` says; empty if it binds none."""
    tools = [["taskset", "-c", cpu_list(affinity.cpus)] for affinity in plan.affinities]
    if len(tools) < 2:
        return tools[0] if tools else []
    cases = " ".join(f'{rank}) set -- {" ".join(tool)} "$@";;' for rank, tool in enumerate(tools))
    return ["sh", "-c", f'case "${{LOCAL_RANK:-$MPI_LOCALRANKID}}" in {cases} esac; exec "$@"', "sh"]


def slurm_tasks(environment: Mapping[str, str]) -> str | None:
    """Return why a Slurm step starts too many tasks on a machine, each of which would take all of it; or None."""
    nodes = environment.get("SLURM_STEP_NUM_NODES", "1")
    tasks = environment.get("SLURM_STEP_NUM_TASKS", nodes)
    advice = "one on each starts its own processes: srun --ntasks-per-node=1 autotune ..."
    return None if tasks == nodes else f"srun started {tasks} tasks on {nodes} machine(s); {advice}"


# Environment ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Environment:
    """Variables to add to the base environment, and what could not be set."""

    set: dict[str, str]
    kept: tuple[str, ...] = ()
    """A sentence for each variable that the user set, which stays in place of the tuned value."""
    not_applied: Mapping[str, str] = field(default_factory=dict)
    """Why, by knob."""


def environment(
    settings: Settings, inventory: Inventory, own: Mapping[str, str], *, machines: int = 1, plain: bool = False
) -> Environment:
    """Return the variables that each training process on this machine starts with.

    The user's environment is ``own``; ``plain`` is that of `Start`. The network interface between several ``machines``
    is the user's to choose.
    """
    start = Start(inventory, own, plain)
    found = {knob.name: knob.variables(settings, start) for knob in KNOBS if knob.variables is not None}
    row = BACKENDS[settings.backend] if settings.backend else None
    if row is not None and row.interface_variable and machines == 1:
        found["backend"] = Variables.unless_own({row.interface_variable: LOOPBACK}, start)
    notes = (
        f"{name}={own[name]} is yours and stays; tuned would be {value}. Unset it to use the profile."
        for each in found.values()
        for name, value in each.kept.items()
    )
    return Environment(
        {name: value for each in found.values() for name, value in each.set.items()},
        tuple(notes),
        {knob: each.why_not for knob, each in found.items() if each.why_not},
    )


def inherited(settings: Settings, inventory: Inventory, own: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that libraries read when they are loaded: a fork cannot change their effect."""
    start = Start(inventory, own)
    found = [knob.variables(settings, start) for knob in KNOBS if knob.inherited and knob.variables is not None]
    return {name: value for each in found for name, value in each.set.items()}


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
