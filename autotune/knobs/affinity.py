"""Plans the CPUs that each training process keeps. Pure: the plan is made here, carried out in the process.

``cores`` gives every process as many CPUs as it has threads and its loader workers the CPUs beside them; ``numa`` gives
every process the CPUs of its node. Ids are the kernel's own: a cpuset may have holes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from autotune.knobs.knob import Affinity, Chosen
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
        return " ".join([cpu_list(self.allowed), *map(_affinity_text, self.affinities)])

    @classmethod
    def parse(cls, text: str) -> AffinityPlan:
        """The inverse of `text`.

        Raises:
            ValueError: ``text`` is no plan.
        """
        allowed, *affinities = text.split(" ")
        return cls(_parse_list(allowed), tuple(_parse_affinity(affinity) for affinity in affinities))


def plan(settings: Chosen, inventory: Inventory) -> AffinityPlan:
    """Plan where the processes of ``settings`` run on this machine; an empty plan where nothing is to be bound.

    Processes get disjoint CPUs wherever there are enough, on whole cores of one node (that of their GPU, if any)
    wherever their threads fit.
    """
    cores = _cores(inventory)
    if settings.binding == "none" or not cores:
        return AffinityPlan()
    shares = _shares(cores, _homes(cores, settings.processes, inventory), settings.threads)
    if settings.binding == "cores":
        return AffinityPlan(inventory.budget.cpus, tuple(_on_cores(share, settings) for share in shares))
    return AffinityPlan(inventory.budget.cpus, tuple(_on_nodes(share, settings) for share in shares))


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
    """Why the binding of ``settings`` cannot be done here or would change nothing; None where it does its work."""
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


def local_rank(environment: Mapping[str, str]) -> int:
    """This process's number among those of one launch on this machine; 0 without a launcher."""
    found = next((environment[name] for name in LOCAL_RANKS if name in environment), "0")
    return int(found) if found.isdecimal() else 0


def plan_of(environment: Mapping[str, str]) -> AffinityPlan:
    """The plan that this process was started with; an empty one where there is none or it cannot be read."""
    try:
        return AffinityPlan.parse(environment[VARIABLE])
    except (KeyError, ValueError):
        return AffinityPlan()


def own_affinity(environment: Mapping[str, str]) -> Affinity | None:
    """This process's affinity in the plan that it was started with; None without one."""
    affinities, rank = plan_of(environment).affinities, local_rank(environment)
    return affinities[rank] if rank < len(affinities) else None


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


def _affinity_text(affinity: Affinity) -> str:
    return f"{cpu_list(affinity.cpus)}/{cpu_list(affinity.workers)}"


def _parse_affinity(text: str) -> Affinity:
    cpus, _, workers = text.partition("/")
    return Affinity(_parse_list(cpus), _parse_list(workers))


# Sharing out ----------------------------------------------------------------------------------------------------------


def _cores(inventory: Inventory) -> list[Share]:
    """The allowed CPUs, SMT siblings together, neighbours in order; empty where one of them is not in the topology."""
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
    for dealt in (
        _deal_homes(cores, homes),
        _deal_kinds(cores, count),
        _deal(cores, count),
        _deal(singles, count),
    ):
        if all(len(share) >= least for share in dealt):
            return dealt
    return [singles[rank % len(singles)] for rank in range(count)]


def _deal_homes(cores: Sequence[Share], homes: Sequence[tuple[int, ...]]) -> list[Share]:
    """Deal each node's cores to the processes at home there."""
    dealt: dict[tuple[int, ...], list[Share]] = {}
    for home in dict.fromkeys(homes):
        dealt[home] = _deal_kinds([core for core in cores if _node(core[0]) in home], homes.count(home))
    return [dealt[home].pop(0) for home in homes]


def _deal_kinds(cores: Sequence[Share], count: int) -> list[Share]:
    """The same part of fast and of slow cores to each process: the slowest one sets the pace of all."""
    slow = [core for core in cores if core[0].kind == "efficiency"]
    fast = [core for core in cores if core[0].kind != "efficiency"]
    return [a + b for a, b in zip(_deal(fast, count), _deal(slow, count), strict=True)]


def _deal(cores: Sequence[Share], count: int) -> list[Share]:
    return [tuple(cpu for core in _slice(cores, rank, count) for cpu in core) for rank in range(count)]


def _slice(items: Sequence[Item], rank: int, count: int) -> Sequence[Item]:
    return items[rank * len(items) // count : (rank + 1) * len(items) // count]


# Within a share -------------------------------------------------------------------------------------------------------


def _on_cores(share: Share, settings: Chosen) -> Affinity:
    """One CPU for each thread: fast cores first, one SMT sibling of each before any second one."""
    seen: dict[tuple[int, int], int] = {}
    turns: list[tuple[bool, int, int]] = []
    for cpu in share:
        turn = seen[cpu.package, cpu.core] = seen.get((cpu.package, cpu.core), -1) + 1
        turns.append((cpu.kind == "efficiency", turn, len(turns)))
    ranked = [share[position] for *_, position in sorted(turns)]
    return _affinity(ranked[: settings.threads], share, settings)


def _on_nodes(share: Share, settings: Chosen) -> Affinity:
    """All CPUs of the share's first node, or of as many nodes as the threads need."""
    chosen: list[LogicalCpu] = []
    for node in dict.fromkeys(map(_node, share)):
        if len(chosen) < settings.threads:
            chosen += [cpu for cpu in share if _node(cpu) == node]
    return _affinity(chosen, share, settings)


def _affinity(chosen: Sequence[LogicalCpu], share: Share, settings: Chosen) -> Affinity:
    """Place workers beside the compute threads where each finds a CPU there, else anywhere in the share."""
    cpus, whole = {cpu.id for cpu in chosen}, {cpu.id for cpu in share}
    beside = whole - cpus
    crowded = len(beside) < max(1, settings.num_workers)
    return Affinity(tuple(sorted(cpus)), tuple(sorted(whole if crowded else beside)))
