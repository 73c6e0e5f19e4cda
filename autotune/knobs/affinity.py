"""Plans the CPUs that each training process keeps. Pure: the plan is made here, carried out in the process.

``cores`` gives every process as many CPUs as it has threads and its loader workers the CPUs beside them; ``numa`` gives
every process the CPUs of its node. Ids are the kernel's own: a cpuset may have holes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from autotune.knobs.change import Affinity
from autotune.knobs.knob import Chosen
from autotune.probes.facts import Inventory, LogicalCpu

BINDINGS = ("none", "cores", "numa")
VARIABLE = "AUTOTUNE_BINDING"
"""Carries `AffinityPlan.text` from whoever starts the processes into each of them."""
LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
"""Variables by which launchers number the processes of one machine."""

Share = tuple[LogicalCpu, ...]
Item = TypeVar("Item")


@dataclass(frozen=True)
class AffinityPlan:
    """One `Affinity` for each process of this machine, by local rank; none where nothing is bound.

    ``allowed`` are the CPUs that training may use in all: a bound process no longer sees them.
    """

    allowed: tuple[int, ...] = ()
    affinities: tuple[Affinity, ...] = ()

    @property
    def text(self) -> str:
        """One line: the allowed CPUs, then ``cpus/workers`` of each process."""
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
        affinities = (Affinity(_parse_list(cpus), _parse_list(workers)) for cpus, _, workers in pairs)
        return cls(_parse_list(allowed), tuple(affinities))


def plan(settings: Chosen, inventory: Inventory) -> AffinityPlan:
    """Plan where the processes of ``settings`` run on this machine; an empty plan if nothing is to be bound.

    Processes get disjoint CPUs if there are enough, on whole cores of one node (that of their GPU, if any) if their
    threads fit.
    """
    cores = _cores(inventory)
    if settings.binding == "none" or not cores:
        return AffinityPlan()
    shares = _shares(cores, _homes(cores, settings.processes, inventory), settings.threads)
    chosen = _fast_cores if settings.binding == "cores" else _near_nodes
    affinities = (_affinity(chosen(share, settings.threads), share, settings.num_workers) for share in shares)
    return AffinityPlan(inventory.budget.cpus, tuple(affinities))


def why_not_offered(inventory: Inventory) -> dict[str, str]:
    """Return ``{binding: reason}`` for every binding that no settings could use on this machine."""
    budget, cores = inventory.budget, _cores(inventory)
    reason = ""
    if inventory.software.platform != "linux":
        reason = "only Linux binds processes to CPUs"
    elif len(budget.cpus) < 2:
        reason = "the budget is one CPU"
    elif not cores:
        reason = "the kernel does not say where the CPUs are"
    elif budget.threads < len(budget.cpus):
        reason = f"a CPU quota of {budget.quota:g} moves over {len(budget.cpus)} CPUs: a fixed few may be a neighbour's"
    if reason:
        return {"cores": reason, "numa": reason}
    nodes = {cpu.node for core in cores for cpu in core}
    return {} if len(nodes) > 1 else {"numa": "the allowed CPUs lie on one NUMA node"}


def why_not(settings: Chosen, inventory: Inventory) -> str | None:
    """Return why the binding of ``settings`` cannot be done here or would change nothing; None if it does its work."""
    binding, count, threads = settings.binding, settings.processes, settings.threads
    if binding == "none":
        return None
    reason = why_not_offered(inventory).get(binding)
    if reason is not None:
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


def _parse_list(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*", text, re.ASCII):
        raise ValueError(f"not a list of CPUs: {text[:80]!r}")
    ends = [part.split("-") for part in text.split(",")]
    return tuple(sorted({cpu for end in ends for cpu in range(int(end[0]), int(end[-1]) + 1)}))


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


def _homes(cores: Sequence[Share], count: int, inventory: Inventory) -> list[tuple[int, ...]]:
    """Choose the nodes of each process: its GPU's node, else processes spread over nodes, or nodes over processes."""
    nodes = list(dict.fromkeys(_node(core[0]) for core in cores))
    beside = [gpu.node for gpu in inventory.gpus[:count]]
    if len(beside) == count and all(node in nodes for node in beside):
        return [(node,) for node in beside if node is not None]
    if count < len(nodes):
        return [tuple(_slice(nodes, rank, count)) for rank in range(count)]
    return [(nodes[rank * len(nodes) // count],) for rank in range(count)]


def _shares(cores: Sequence[Share], homes: Sequence[tuple[int, ...]], least: int) -> list[Share]:
    """Deal CPUs to each process, in the most local way in which each gets ``least`` of them."""
    count = len(homes)
    singles = [(cpu,) for core in cores for cpu in core]
    for dealt in (_at_home(cores, homes), _deal(cores, count, _is_slow), _deal(cores, count), _deal(singles, count)):
        if all(len(share) >= least for share in dealt):
            return dealt
    return [singles[rank % len(singles)] for rank in range(count)]


def _at_home(cores: Sequence[Share], homes: Sequence[tuple[int, ...]]) -> list[Share]:
    """Deal each node's cores to the processes at home there."""
    dealt: dict[tuple[int, ...], list[Share]] = {}
    for home in dict.fromkeys(homes):
        dealt[home] = _deal([core for core in cores if _node(core[0]) in home], homes.count(home), _is_slow)
    return [dealt[home].pop(0) for home in homes]


def _is_slow(core: Share) -> bool:
    return core[0].kind == "efficiency"


def _deal(cores: Sequence[Share], count: int, kind: Callable[[Share], bool] = lambda core: False) -> list[Share]:
    """Deal the same part of each ``kind`` of cores to each of ``count``: the slowest one sets the pace of all."""
    shares: list[Share] = [()] * count
    for which in (False, True):
        alike = [core for core in cores if kind(core) == which]
        for rank in range(count):
            shares[rank] += tuple(cpu for core in _slice(alike, rank, count) for cpu in core)
    return shares


def _slice(items: Sequence[Item], rank: int, count: int) -> Sequence[Item]:
    return items[rank * len(items) // count : (rank + 1) * len(items) // count]


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
