"""The processors: names, instruction sets, cores, caches, NUMA nodes."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping

from autotune.probes import families
from autotune.probes.facts import Cache, Cpu, LogicalCpu, NumaNode
from autotune.probes.system import Facts, System

_CPUS = "/sys/devices/system/cpu"
_NODES = "/sys/devices/system/node"
_HIGHEST_CPU = 1 << 16
"""Far above any kernel's NR_CPUS: a longer range comes from a broken file."""


def probe(system: System) -> Cpu:
    """Return the processors that the kernel shows, whether or not this process may use them."""
    if system.platform == "darwin":
        return _on_mac(system)
    records = parse_cpuinfo(system.read("/proc/cpuinfo") or "")
    first = records[0] if records else {}
    if not first.get("flags") and not first.get("Features") and "CPU implementer" not in first and "cpu" not in first:
        first = _from_py_cpuinfo(system) | first
    vendor, family = families.identify(first)
    online = online_cpus(system)
    nodes = numa_nodes(system)
    return Cpu(
        vendor=vendor,
        model=first.get("model name") or first.get("cpu") or family,
        family=family,
        architecture=system.machine,
        features=families.features(first),
        logical=_logical(system, online, nodes, {r.get("processor", ""): r for r in records}),
        caches=_caches(system, online),
        nodes=nodes,
    )


def _on_mac(system: System) -> Cpu:
    """Ask ``sysctl`` about an Apple processor. Its efficiency cores (perflevel1) come first. PyTorch has left Intel."""
    lines = system.run(["sysctl", "hw", "machdep.cpu"], timeout=5).stdout.splitlines()
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    brand = facts.get("machdep.cpu.brand_string", "unknown")
    online, slow = _int(facts.get("hw.logicalcpu"), system.cpu_count()), _int(facts.get("hw.perflevel1.logicalcpu"), 0)
    kinds = ["efficiency"] * slow + ["performance" if slow else "uniform"] * (online - slow)
    known = ["asimd", *(name for name in ("BF16", "I8MM", "SME") if facts.get(f"hw.optional.arm.FEAT_{name}") == "1")]
    return Cpu(
        vendor="apple",
        model=brand,
        family=families.slug(brand.lower().removeprefix("apple ")),
        architecture=system.machine,
        features=families.features({"Features": " ".join(known).lower()}),
        logical=tuple(LogicalCpu(id, 0, id, None, kind) for id, kind in enumerate(kinds)),
        caches=(),
        nodes=(),
    )


def _from_py_cpuinfo(system: System) -> dict[str, str]:
    """Return the record that py-cpuinfo finds if ``/proc/cpuinfo`` has no names. Takes a second, once per boot."""
    command = [system.python, "-m", "cpuinfo", "--json"]

    def ask() -> Facts:
        try:
            found = json.loads(system.run(command).stdout or "{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    found = system.remember("cpuinfo", [1, system.boot_id(), system.machine], ask)
    names = {"vendor_id": "vendor_id_raw", "cpu family": "family", "model": "model", "model name": "brand_raw"}
    record = {name: str(found[key]) for name, key in names.items() if key in found}
    return record | ({"flags": " ".join(map(str, found["flags"]))} if isinstance(found.get("flags"), list) else {})


def online_cpus(system: System) -> tuple[int, ...]:
    """Return the ids of the online logical CPUs."""
    listed = system.read(f"{_CPUS}/online")
    if listed:
        return parse_cpu_list(listed)
    return tuple(sorted(system.affinity() or range(system.cpu_count())))


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Read a kernel CPU list such as ``0-3,8`` as sorted ids; ValueError for anything else."""
    found: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < _HIGHEST_CPU:
            raise ValueError(f"not a list of CPUs: {text[:80]!r}")
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def parse_cpuinfo(text: str) -> list[dict[str, str]]:
    """Read ``/proc/cpuinfo`` as one dictionary per processor (a machine-wide block at the end is left out)."""
    blocks = [
        {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in block.splitlines())}
        for block in re.split(r"\n\s*\n", text)
    ]
    return [block for block in blocks if "processor" in block]


def numa_nodes(system: System) -> tuple[NumaNode, ...]:
    """Return the NUMA nodes by id; none if the kernel shows none."""
    ids = sorted(int(name[4:]) for name in system.list(_NODES) if re.fullmatch(r"node\d+", name))
    return tuple(_node(system, node) for node in ids)


def _node(system: System, node: int) -> NumaNode:
    folder = f"{_NODES}/node{node}"
    memory = re.search(r"MemTotal:\s+(\d+) kB", system.read(f"{folder}/meminfo") or "")
    distances = (system.read(f"{folder}/distance") or "").split()
    return NumaNode(
        id=node,
        cpus=parse_cpu_list(system.read(f"{folder}/cpulist") or ""),
        memory=int(memory[1]) * 1024 if memory else 0,
        distances=tuple(int(d) for d in distances if d.isdigit()),
    )


def _logical(
    system: System, online: Iterable[int], nodes: Iterable[NumaNode], records: Mapping[str, Mapping[str, str]]
) -> tuple[LogicalCpu, ...]:
    node_of = {cpu: node.id for node in nodes for cpu in node.cpus}
    ids = tuple(online)
    places = physical_cores({cpu: _topology(system, cpu, records.get(str(cpu), {})) for cpu in ids})
    kinds = _kinds(system, ids)
    return tuple(
        LogicalCpu(id=cpu, package=places[cpu][0], core=places[cpu][1], node=node_of.get(cpu), kind=kinds[cpu])
        for cpu in ids
    )


def _topology(system: System, cpu: int, record: Mapping[str, str]) -> tuple[int, int, tuple[int, ...]]:
    """Return package, kernel core id and SMT siblings of a CPU; without sysfs (sandboxes) ``/proc/cpuinfo`` answers."""
    folder = f"{_CPUS}/cpu{cpu}/topology"
    package = _int(system.read(f"{folder}/physical_package_id") or record.get("physical id"), 0)
    core = _int(system.read(f"{folder}/core_id") or record.get("core id"), cpu)
    siblings = parse_cpu_list(system.read(f"{folder}/thread_siblings_list") or "")
    return max(package, 0), core, siblings


def physical_cores(topology: Mapping[int, tuple[int, int, tuple[int, ...]]]) -> dict[int, tuple[int, int]]:
    """Map each CPU to (package, core), equal for SMT siblings only.

    ``topology`` holds (package, kernel core id, siblings). Old Arm kernels number cores from 0 again in every cluster
    and some hypervisors give -1: if core ids and siblings disagree, the first sibling's id names the core.
    """
    groups = {cpu: siblings or (cpu,) for cpu, (_, _, siblings) in topology.items()}
    if not any(siblings for _, _, siblings in topology.values()):
        return {cpu: (package, core) for cpu, (package, core, _) in topology.items()}
    named = {(package, core, groups[cpu]) for cpu, (package, core, _) in topology.items()}
    clashes = Counter((package, core) for package, core, _ in named)
    trusted = all(count == 1 for count in clashes.values()) and all(core >= 0 for _, core, _ in named)
    return {cpu: (package, core if trusted else groups[cpu][0]) for cpu, (package, core, _) in topology.items()}


def _kinds(system: System, cpus: Iterable[int]) -> dict[int, str]:
    """Tell performance from efficiency cores if the kernel has two kinds (Intel by PMU, Arm by capacity)."""
    ids = tuple(cpus)
    fast = set(parse_cpu_list(system.read("/sys/devices/cpu_core/cpus") or ""))
    slow = set(parse_cpu_list(system.read("/sys/devices/cpu_atom/cpus") or ""))
    if system.machine == "aarch64" and not (fast or slow):
        capacity = {cpu: _int(system.read(f"{_CPUS}/cpu{cpu}/cpu_capacity"), 0) for cpu in ids}
        # Three tiers exist; the middle one is still a big core.
        slow = {cpu for cpu in ids if 0 < capacity[cpu] < max(capacity.values()) / 2}
        fast = set(ids) - slow if slow else set()
    if not (fast and slow):
        return dict.fromkeys(ids, "uniform")
    return {cpu: "efficiency" if cpu in slow else "performance" for cpu in ids}


def _caches(system: System, cpus: Iterable[int]) -> tuple[Cache, ...]:
    """Return every cache once, by level, type and first CPU."""
    found: dict[tuple[int, str, tuple[int, ...]], Cache] = {}
    covered: set[int] = set()
    for cpu in cpus:
        if cpu in covered:  # its SMT sibling has shown the same caches
            continue
        for cache in _caches_of(system, cpu):
            found[cache.level, cache.type, cache.shared_by] = cache
            covered.update(cache.shared_by if cache.level == 1 else ())
    return tuple(found[key] for key in sorted(found))


def _caches_of(system: System, cpu: int) -> Iterable[Cache]:
    base = f"{_CPUS}/cpu{cpu}/cache"
    for name in system.list(base):
        level, size = system.read(f"{base}/{name}/level"), parse_size(system.read(f"{base}/{name}/size") or "")
        if level and level.isdigit() and size:
            shared = parse_cpu_list(system.read(f"{base}/{name}/shared_cpu_list") or str(cpu))
            yield Cache(int(level), system.read(f"{base}/{name}/type") or "Unified", size, shared or (cpu,))


def parse_size(text: str) -> int | None:
    """Read a size such as ``1024K`` in bytes, or None."""
    match = re.fullmatch(r"(\d+)([KMG]?)B?", text.strip())
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]] if match else None


def _int(text: str | None, default: int) -> int:
    try:
        return int(text or "")
    except ValueError:
        return default
