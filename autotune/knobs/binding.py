"""The CPUs that each process keeps: plan them, bind it and its loader workers, and read back what is in force.

``cores`` gives every process as many CPUs as it has threads and its loader workers the CPUs beside them; ``numa`` gives
every process the CPUs of its node. Ids are the kernel's own: a cpuset may have holes.

Only the process's CPU mask is set: the scheduler still moves threads within it, and the kernel takes memory
from the node of the thread that touches it first. Imports no PyTorch.

``python -m autotune.knobs.binding COMMAND ...`` starts one training process on its own CPUs: it binds by the plan in
the environment and the process's local rank, then becomes ``COMMAND``. The mask stays, and the
script runs as if it had been started by itself. `autotune run` puts this before the script.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.knobs.change import Affinity, Change, Training
from autotune.knobs.knob import Choices, Chosen, Knob, Word
from autotune.probes.cpu import parse_cpu_list
from autotune.probes.facts import Inventory, LogicalCpu

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

BINDINGS = ("none", "cores", "numa")
VARIABLE = "AUTOTUNE_BINDING"
"""Carries `AffinityPlan.text` from the launcher into each process."""
LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
"""Variables by which launchers number the processes of one machine."""

Share = tuple[LogicalCpu, ...]


@dataclass(frozen=True)
class AffinityPlan:
    """One `Affinity` for each process of this machine, by local rank; none if nothing is bound.

    ``allowed`` are the CPUs that training may use in all: a bound process no longer sees them.
    """

    allowed: tuple[int, ...] = ()
    affinities: tuple[Affinity, ...] = ()

    @property
    def text(self) -> str:
        """Return one line: the allowed CPUs, then ``cpus/workers`` of each process."""
        places = (f"{cpu_list(each.cpus)}/{cpu_list(each.workers)}" for each in self.affinities)
        return " ".join([cpu_list(self.allowed), *places])

    @classmethod
    def parse(cls, text: str) -> AffinityPlan:
        """Return the plan that `text` was made from.

        Raises:
            ValueError: ``text`` is no plan.
        """
        allowed, *places = text.split(" ")
        pairs = [place.partition("/") for place in places]
        affinities = (Affinity(parse_cpu_list(cpus), parse_cpu_list(workers)) for cpus, _, workers in pairs)
        return cls(parse_cpu_list(allowed), tuple(affinities))


def plan(settings: Chosen, inventory: Inventory) -> AffinityPlan:
    """Plan where the processes of ``settings`` run on this machine; an empty plan if nothing is to be bound.

    Processes get disjoint CPUs if there are enough, on whole cores of one node (that of their GPU, if any) if their
    threads fit.
    """
    cores = _cores(inventory)
    if settings.binding == "none" or not cores:
        return AffinityPlan()
    shares = _shares(cores, inventory, settings.processes, settings.threads)
    chosen = _fast_cores if settings.binding == "cores" else _near_nodes
    affinities = (_affinity(chosen(share, settings.threads), share, settings.num_workers) for share in shares)
    return AffinityPlan(inventory.budget.cpus, tuple(affinities))


def why_not_offered(inventory: Inventory) -> Choices:
    """Return why no settings could use a binding on this machine, or None, for every binding."""
    budget, cores, reason = inventory.budget, _cores(inventory), None
    if inventory.software.platform != "linux":
        reason = "only Linux binds processes to CPUs"
    elif len(budget.cpus) < 2:
        reason = "the budget is one CPU"
    elif not cores:
        reason = "the kernel does not show where the CPUs are"
    elif budget.threads < len(budget.cpus):
        reason = f"a CPU quota of {budget.quota:g} moves over {len(budget.cpus)} CPUs: a fixed few may be a neighbour's"
    several = len({cpu.node for core in cores for cpu in core}) > 1
    return {
        "none": None,
        "cores": reason,
        "numa": reason or (None if several else "the allowed CPUs lie on one NUMA node"),
    }


def why_not(settings: Chosen, inventory: Inventory) -> str | None:
    """Return why the binding of ``settings`` cannot be done here or would change nothing; None if it does its work."""
    binding, count, threads = settings.binding, settings.processes, settings.threads
    if binding == "none":
        return None
    if (reason := why_not_offered(inventory)[binding]) is not None:
        return reason
    if count * threads > len(inventory.budget.cpus):
        return f"{count} x {threads} threads need CPUs of their own"
    if binding == "cores":
        return "one process has all CPUs anyway" if threads == len(inventory.budget.cpus) else None
    node_of = {cpu.id: cpu.node for cpu in inventory.cpu.logical}
    spread = [{node_of[cpu] for cpu in affinity.cpus} for affinity in plan(settings, inventory).affinities]
    if any(len(nodes) > 1 for nodes in spread):
        return f"the {threads} threads of a process do not fit into one node"
    return None


def plan_of(environment: Mapping[str, str]) -> AffinityPlan:
    """Return the plan that this process was started with; an empty one if there is none or it cannot be read."""
    try:
        return AffinityPlan.parse(environment[VARIABLE])
    except (KeyError, ValueError):
        return AffinityPlan()


def own_affinity(environment: Mapping[str, str]) -> Affinity | None:
    """Return this process's affinity in the plan that it was started with; None without one."""
    rank = next((environment[name] for name in LOCAL_RANKS if name in environment), "0")
    place, affinities = int(rank) if rank.isdecimal() else 0, plan_of(environment).affinities
    return affinities[place] if place < len(affinities) else None


def cpu_list(cpus: Iterable[int]) -> str:
    """Write ids as the kernel and ``taskset`` do: ``0-3,8``."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


# Sharing out ----------------------------------------------------------------------------------------------------------


def _cores(inventory: Inventory) -> list[Share]:
    """Return the allowed CPUs, SMT siblings together, neighbours in order; none if one is not in the topology."""
    allowed = set(inventory.budget.cpus)
    cores: dict[tuple[int, int], list[LogicalCpu]] = {}
    for cpu in sorted(inventory.cpu.logical, key=lambda cpu: cpu.id):
        if cpu.id in allowed:
            cores.setdefault((cpu.package, cpu.core), []).append(cpu)
    if sum(map(len, cores.values())) != len(allowed):
        return []
    return sorted(map(tuple, cores.values()), key=lambda core: (_node(core[0]), core[0].package, core[0].id))


def _node(cpu: LogicalCpu) -> int:
    return 0 if cpu.node is None else cpu.node


def _shares(cores: Sequence[Share], inventory: Inventory, count: int, least: int) -> list[Share]:
    """Assign CPUs to each of ``count`` processes, in the most local way that gives each ``least`` of them.

    First near its GPU, then whole cores in the order of their nodes, then single CPUs, then fast and slow CPUs mixed.
    """
    singles = [(cpu,) for core in cores for cpu in core]
    nodes = [gpu.node for gpu in inventory.gpus[:count]]
    near = {node: _assign([core for core in cores if core[0].node == node], nodes.count(node)) for node in nodes}
    beside = [near[node].pop(0) for node in nodes]
    evenly = [_part(singles, rank, count) for rank in range(count)]
    for assigned in (beside, _assign(cores, count), _assign(singles, count), evenly):
        if len(assigned) == count and all(len(share) >= least for share in assigned):
            return assigned
    return [singles[rank % len(singles)] for rank in range(count)]


def _assign(cores: Sequence[Share], count: int) -> list[Share]:
    """Assign the same part of fast and of slow cores to each of ``count``: the slowest one sets the pace of all."""
    shares: list[Share] = [()] * count
    for slow in (False, True):
        alike = [core for core in cores if (core[0].kind == "efficiency") == slow]
        for rank in range(count):
            shares[rank] += _part(alike, rank, count)
    return shares


def _part(cores: Sequence[Share], rank: int, count: int) -> Share:
    first, end = (place * len(cores) // count for place in (rank, rank + 1))
    return tuple(cpu for core in cores[first:end] for cpu in core)


# Within a share -------------------------------------------------------------------------------------------------------


def _fast_cores(share: Share, threads: int) -> Sequence[LogicalCpu]:
    """Choose a CPU for each thread: fast cores first, one SMT sibling of each before any second one."""
    siblings: dict[tuple[int, int], list[LogicalCpu]] = {}
    for cpu in share:
        siblings.setdefault((cpu.package, cpu.core), []).append(cpu)
    turn = {cpu.id: place for core in siblings.values() for place, cpu in enumerate(core)}
    return sorted(share, key=lambda cpu: (cpu.kind == "efficiency", turn[cpu.id]))[:threads]


def _near_nodes(share: Share, threads: int) -> Sequence[LogicalCpu]:
    """Choose all CPUs of the share's first node, or of as many nodes as the threads need."""
    chosen: list[LogicalCpu] = []
    for node in dict.fromkeys(map(_node, share)):
        if len(chosen) < threads:
            chosen += [cpu for cpu in share if _node(cpu) == node]
    return chosen


def _affinity(chosen: Sequence[LogicalCpu], share: Share, workers: int) -> Affinity:
    """Place workers beside the compute threads if each finds a CPU there, else anywhere in the share."""
    cpus, whole = {cpu.id for cpu in chosen}, {cpu.id for cpu in share}
    beside = whole - cpus
    crowded = len(beside) < max(1, workers)
    return Affinity(tuple(sorted(cpus)), tuple(sorted(whole if crowded else beside)))


# In force -------------------------------------------------------------------------------------------------------------

TASKS = Path("/proc/self/task")
OPENMP_BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
"""The user's own variables that bind threads to single CPUs within the mask; they are kept."""


def bind_by_plan() -> str | None:
    """Bind this process by the plan and the local rank in its environment; return why that failed, or None.

    Call it while there is one thread: what this one starts from now on is bound too.
    """
    affinity = own_affinity(os.environ)
    if affinity is None:
        return None
    try:
        os.sched_setaffinity(0, affinity.cpus)
    except OSError as error:  # this process may not use the CPUs
        return error.strerror or str(error)
    return None


class WorkerAffinity:
    """Moves each loader worker to ``cpus``.

    A worker starts where the thread that made it runs: one core under OpenMP binding (pytorch/pytorch#101850).

    Attributes:
        cpus: where workers run.
        failed: shared with the workers: 1 once one of them did not get its CPUs.
    """

    def __init__(self, cpus: tuple[int, ...]) -> None:
        self.cpus = cpus
        self.failed = multiprocessing.RawValue("i", 0)

    def __call__(self, _worker: int) -> None:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, self.cpus)
        if os.sched_getaffinity(0) != set(self.cpus):
            self.failed.value = 1


class _Bound(Change):
    """CPUs that were bound before this process started, read back."""

    def __init__(self, affinity: Affinity | None) -> None:
        self._affinity = affinity
        self.workers: list[WorkerAffinity] = []

    def why_not(self) -> str | None:
        """Return why threads or workers run on other CPUs, or None."""
        if self._affinity is None:
            return "this process was not started on CPUs of its own; only autotune run can do that"
        found: set[int] = set()
        for task in TASKS.iterdir():
            with contextlib.suppress(ProcessLookupError):  # a thread that has just ended
                found |= os.sched_getaffinity(int(task.name))
        wanted = set(self._affinity.cpus)
        narrowed = found < wanted and any(name in os.environ for name in OPENMP_BINDING)
        if not narrowed and found != wanted:
            return f"asked CPUs {cpu_list(wanted)}, threads run on {cpu_list(found)}"
        failed = [workers.cpus for workers in self.workers if workers.failed.value]
        return f"loader workers did not get CPUs {cpu_list(failed[0])}" if failed else None


def _on_loader(settings: Chosen, _loader: DataLoader[Any], training: Training) -> dict[str, Any]:
    """Let loader workers run on the CPUs beside the compute threads."""
    bound = training.started.get("binding")
    if not isinstance(bound, _Bound) or training.affinity is None or settings.num_workers == 0:
        return {}
    bound.workers.append(WorkerAffinity(training.affinity.workers))
    return {"worker_init_fn": bound.workers[-1]}


BINDING = Knob(
    name="binding",
    live=False,
    words="bound to {}",
    kind=Word(BINDINGS),
    neutral="none",
    applied="launch",
    choices=lambda context: why_not_offered(context.inventory),
    dependent=True,
    why={
        "cores": "each process keeps its cores and caches",
        "numa": "memory stays near each process's cores",
        "none": "the scheduler places threads better",
    },
    spread=0.05,
    start=lambda _value, training: _Bound(training.affinity),
    on_loader=_on_loader,
    plain=lambda plan: f"start processes on their CPUs: {plan.command}",
)


def main(command: list[str]) -> None:
    """Bind this process, and become ``command``. Training goes on if binding fails."""
    if (reason := bind_by_plan()) is not None:
        sys.stderr.write(f"autotune: binding not applied: {reason}\n")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
