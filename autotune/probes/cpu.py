"""The processors: names, instruction sets, cores, NUMA nodes; kernel and power settings that slow them.

Processors go by short names of their designs, by what they report (cpuid, MIDR), never guessed. Only designs that
people train on are named; any other gets its numbers (``family6-model250``), which is a key as good. Sources: AMD
models as in the Linux kernel's ``arch/x86/kernel/cpu/amd.c``, Intel models as in
``arch/x86/include/asm/intel-family.h``, Arm parts as in ``arch/arm64/include/asm/cputype.h``. archspec 0.2.7 cannot
replace the tables: it distinguishes x86 designs by features alone, and names a virtual Emerald Rapids without
``waitpkg`` Ice Lake.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from autotune.probes.facts import Cpu, LogicalCpu, NumaNode
from autotune.probes.system import System

_CPUS = "/sys/devices/system/cpu"
_NODES = "/sys/devices/system/node"
_SUPPLIES = "/sys/class/power_supply"
_CPUFREQ = "/sys/devices/system/cpu/cpu0/cpufreq"
_SELF_GOVERNED = frozenset({"intel_pstate", "amd-pstate-epp"})
"""Drivers whose ``powersave`` still clocks up under load."""

_UNITS = ("amx", "avx512-bf16", "avx512-vnni", "avx512", "avx2", "avx")
"""Vector and matrix units of x86, widest first. Only processors with one have a flag that starts so, with ``_``."""

_AMD_0X17, _AMD_0X19, _AMD_0X1A, _INTEL = ("amd", 0x17), ("amd", 0x19), ("amd", 0x1A), ("intel", 6)
_X86: tuple[tuple[str, tuple[str, int], str, Sequence[int]], ...] = (
    # design, vendor and family, its widest unit, models; 0x55 is three generations of servers
    ("zen1", _AMD_0X17, "avx2", (*range(0x30), *range(0x50, 0x60))),
    ("zen2", _AMD_0X17, "avx2", (*range(0x30, 0x50), *range(0x60, 0x80), *range(0x90, 0xB0))),
    ("zen3", _AMD_0X19, "avx2", (*range(0x10), *range(0x20, 0x60))),
    ("zen4", _AMD_0X19, "avx512-bf16", (*range(0x10, 0x20), *range(0x60, 0xA0))),
    ("zen4c", _AMD_0X19, "avx512-bf16", range(0xA0, 0xB0)),
    ("zen5", _AMD_0X1A, "avx512-bf16", (*range(0x10), *range(0x20, 0x30), *range(0x40, 0x50), *range(0x60, 0x80))),
    ("zen5c", _AMD_0X1A, "avx512-bf16", range(0x10, 0x20)),
    ("ivy-bridge", _INTEL, "avx", (0x3A, 0x3E)),
    ("haswell", _INTEL, "avx2", (0x3C, 0x45, 0x46)),
    ("haswell-ep", _INTEL, "avx2", (0x3F,)),
    ("broadwell", _INTEL, "avx2", (0x3D, 0x47)),
    ("broadwell-ep", _INTEL, "avx2", (0x4F, 0x56)),
    ("skylake", _INTEL, "avx2", (0x4E, 0x5E)),
    ("kaby-lake", _INTEL, "avx2", (0x8E, 0x9E)),
    ("comet-lake", _INTEL, "avx2", (0xA5, 0xA6)),
    ("alder-lake", _INTEL, "avx2", (0x97, 0x9A)),
    ("raptor-lake", _INTEL, "avx2", (0xB7, 0xBA, 0xBF)),
    ("meteor-lake", _INTEL, "avx2", (0xAA, 0xAC)),
    ("lunar-lake", _INTEL, "avx2", (0xBD,)),
    ("arrow-lake", _INTEL, "avx2", (0xB5, 0xC5, 0xC6)),
    ("sierra-forest", _INTEL, "avx2", (0xAF,)),
    ("skylake-sp", _INTEL, "avx512", (0x55,)),
    ("cascade-lake", _INTEL, "avx512-vnni", (0x55,)),
    ("cooper-lake", _INTEL, "avx512-bf16", (0x55,)),
    ("ice-lake", _INTEL, "avx512-vnni", (0x7D, 0x7E)),
    ("ice-lake-sp", _INTEL, "avx512-vnni", (0x6A, 0x6C)),
    ("tiger-lake", _INTEL, "avx512-vnni", (0x8C, 0x8D)),
    ("rocket-lake", _INTEL, "avx512-vnni", (0xA7,)),
    ("sapphire-rapids", _INTEL, "amx", (0x8F,)),
    ("emerald-rapids", _INTEL, "amx", (0xCF,)),
    ("granite-rapids", _INTEL, "amx", (0xAD, 0xAE)),
)

_ARM: dict[tuple[int, int], str] = {
    (0x41, 0xD0C): "neoverse-n1",
    (0x41, 0xD40): "neoverse-v1",
    (0x41, 0xD42): "cortex-a78ae",
    (0x41, 0xD49): "neoverse-n2",
    (0x41, 0xD4F): "neoverse-v2",
    (0x41, 0xD84): "neoverse-v3",
    (0x41, 0xD85): "cortex-x925",
    (0x41, 0xD87): "cortex-a725",
    (0x41, 0xD8E): "neoverse-n3",
    (0x46, 0x001): "a64fx",
    (0x48, 0xD01): "kunpeng-920",
    (0x51, 0x001): "oryon",
    (0xC0, 0xAC3): "ampere-one",
    (0xC0, 0xAC4): "ampere-one-a",
}
_FEATURES = frozenset(
    "avx avx2 fma f16c avx_vnni avx512f avx512bw avx512_vnni avx512_bf16 avx512_fp16 amx_tile amx_bf16 amx_int8"
    " amx_fp16 neon asimddp fphp sve sve2 bf16 i8mm sme".split()
)


def probe(system: System) -> Cpu:
    """Return the processors that the kernel shows, whether or not this process may use them."""
    if system.platform == "darwin":
        return _on_mac(system)
    records = [_pairs(block) for block in (system.read("/proc/cpuinfo") or "").split("\n\n")]
    first = records[0]
    vendor, family = identify(first)
    nodes = numa_nodes(system)
    return Cpu(
        vendor=vendor,
        model=first.get("model name") or first.get("cpu") or family,
        family=family,
        architecture=system.machine,
        features=features(first),
        logical=_logical(system, nodes, records),
        nodes=nodes,
    )


def _on_mac(system: System) -> Cpu:
    """Read an Apple processor from ``sysctl``. Its efficiency cores (perflevel1) come first. PyTorch has left Intel."""
    facts = _pairs(system.run(["sysctl", "hw", "machdep.cpu"], timeout=5).stdout)
    brand = facts.get("machdep.cpu.brand_string", "unknown")
    online = _number(facts.get("hw.logicalcpu")) or len(system.affinity())
    slow = _number(facts.get("hw.perflevel1.logicalcpu"))
    kinds = ["efficiency"] * slow + ["performance" if slow else "uniform"] * (online - slow)
    known = ["asimd", *(name for name in ("BF16", "I8MM", "SME") if facts.get(f"hw.optional.arm.FEAT_{name}") == "1")]
    return Cpu(
        vendor="apple",
        model=brand,
        family="-".join(re.findall(r"[a-z0-9]+", brand.lower().removeprefix("apple "))),
        architecture=system.machine,
        features=features({"Features": " ".join(known).lower()}),
        logical=tuple(LogicalCpu(id, 0, id, None, kind) for id, kind in enumerate(kinds)),
        nodes=(),
    )


def online_cpus(system: System) -> tuple[int, ...]:
    """Return the ids of the online logical CPUs."""
    listed = system.read(f"{_CPUS}/online")
    return parse_cpu_list(listed) if listed else tuple(sorted(system.affinity()))


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Read a kernel CPU list such as ``0-3,8`` as sorted ids; ValueError for anything else."""
    found: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise ValueError(f"not a list of CPUs: {text[:80]!r}")
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def numa_nodes(system: System) -> tuple[NumaNode, ...]:
    """Return the NUMA nodes by id; none if the kernel shows none."""
    ids = sorted(int(name[4:]) for name in system.list(_NODES) if re.fullmatch(r"node\d+", name))
    return tuple(NumaNode(node, parse_cpu_list(system.read(f"{_NODES}/node{node}/cpulist") or "")) for node in ids)


def _logical(system: System, nodes: Iterable[NumaNode], records: Iterable[Mapping[str, str]]) -> tuple[LogicalCpu, ...]:
    """Return the online logical CPUs by id."""
    shown = {record.get("processor"): record for record in records}
    node_of = {cpu: node.id for node in nodes for cpu in node.cpus}
    ids = online_cpus(system)
    kinds = _kinds(system, ids)
    return tuple(LogicalCpu(id, *_place(system, id, shown.get(str(id), {})), node_of.get(id), kinds[id]) for id in ids)


def _place(system: System, cpu: int, record: Mapping[str, str]) -> tuple[int, int]:
    """Return package and core of a CPU. A core goes by its first SMT sibling: kernels number cores in several ways.

    Without sysfs (sandboxes) ``/proc/cpuinfo`` answers.
    """
    folder = f"{_CPUS}/cpu{cpu}/topology"
    package = _number(system.read(f"{folder}/physical_package_id") or record.get("physical id"))
    siblings = parse_cpu_list(system.read(f"{folder}/thread_siblings_list") or "")
    return max(0, package), siblings[0] if siblings else _number(record.get("core id"), cpu)


def _kinds(system: System, ids: Iterable[int]) -> dict[int, str]:
    """Distinguish performance and efficiency cores if the kernel has two kinds (Intel by PMU, Arm by capacity)."""
    slow = set(parse_cpu_list(system.read("/sys/devices/cpu_atom/cpus") or ""))
    if system.machine == "aarch64":
        capacity = {cpu: _number(system.read(f"{_CPUS}/cpu{cpu}/cpu_capacity")) for cpu in ids}
        # Three tiers exist; the middle one is still a big core.
        slow = {cpu for cpu in ids if 0 < capacity[cpu] < max(capacity.values()) / 2}
    if not slow or slow.issuperset(ids):
        return dict.fromkeys(ids, "uniform")
    return {cpu: "efficiency" if cpu in slow else "performance" for cpu in ids}


# Names of designs -----------------------------------------------------------------------------------------------------


def identify(record: Mapping[str, str]) -> tuple[str, str]:
    """Return vendor and family slug of one processor record of ``/proc/cpuinfo``."""
    if "CPU implementer" in record:
        implementer, part = _number(record["CPU implementer"]), _number(record.get("CPU part"))
        vendor = "apple" if implementer == 0x61 else "arm"
        return vendor, _ARM.get((implementer, part), f"implementer{implementer:#x}-part{part:#x}")
    if "vendor_id" in record and "cpu family" in record:
        return _x86(record)
    return "unknown", "unknown"


def features(record: Mapping[str, str]) -> tuple[str, ...]:
    """Return the instruction sets that matter for training, sorted; Arm's ``asimd`` is called ``neon``."""
    words = set(f"{record.get('flags', '')} {record.get('Features', '')}".split())
    words |= {"neon"} if "asimd" in words else set()
    return tuple(sorted(words & _FEATURES))


def _x86(record: Mapping[str, str]) -> tuple[str, str]:
    """Go by the features if a hypervisor shows the model number of one design and the features of another."""
    vendor = {"AuthenticAMD": "amd", "GenuineIntel": "intel"}.get(record["vendor_id"], "unknown")
    family, model = _number(record["cpu family"]), _number(record.get("model"))
    designs = {unit: name for name, its, unit, models in _X86 if its == (vendor, family) and model in models}
    if not designs:
        return vendor, f"family{family}-model{model}"
    words = record.get("flags", "").split()
    units = (unit for unit in _UNITS if any(word.startswith(unit.replace("-", "_")) for word in words))
    shown = next(units, "sse") if words else next(iter(designs))
    if shown not in designs:
        return vendor, shown
    return vendor, _product_line(record.get("model name", "")) + designs[shown]


def _product_line(name: str) -> str:
    """Return AMD's line of products: one design is sold as several, with other caches and memory channels."""
    line = re.search(r"epyc|threadripper|ryzen", name.lower().replace("ryzen threadripper", "threadripper"))
    return f"{line[0]}-" if line else ""


def _pairs(text: str) -> dict[str, str]:
    """Read lines ``key: value``."""
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}


def _number(text: str | None, other: int = 0) -> int:
    """Read a decimal or 0x number; ``other`` (0 is in no table) for anything else."""
    try:
        return int(text or "", 0)
    except ValueError:
        return other


# Switches of kernel and power -----------------------------------------------------------------------------------------


def moves_pages(system: System) -> bool:
    """Return True if the kernel moves pages between NUMA nodes by itself."""
    return system.read("/proc/sys/kernel/numa_balancing") not in (None, "0")


def power(system: System) -> tuple[str, ...]:
    """Return a sentence for every power setting that slows training or makes its speed uneven."""
    notes = []
    if _on_battery(system):
        notes.append("The machine runs on its battery: it will be slower and less steady than on mains power.")
    governor, driver = system.read(f"{_CPUFREQ}/scaling_governor"), system.read(f"{_CPUFREQ}/scaling_driver")
    if governor == "powersave" and driver not in _SELF_GOVERNED:
        notes.append(
            "The CPU frequency governor is powersave, which holds the clock down: performance would be faster."
        )
    return tuple(notes)


def _on_battery(system: System) -> bool:
    """Return True if a laptop's own battery discharges; mice and pens have batteries too, with scope Device."""
    if system.platform == "darwin":
        return "'Battery Power'" in system.run(["pmset", "-g", "batt"], timeout=5).stdout
    for folder in (f"{_SUPPLIES}/{name}" for name in system.list(_SUPPLIES)):
        kind, status = system.read(f"{folder}/type"), system.read(f"{folder}/status")
        if (kind, status) == ("Battery", "Discharging") and system.read(f"{folder}/scope") != "Device":
            return True
    return False
