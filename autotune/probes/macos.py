"""The same facts on macOS, which answers by commands rather than by files. No masks, quotas or NUMA there."""

from __future__ import annotations

import re

from autotune.probes import families
from autotune.probes.facts import Cpu, LogicalCpu, Memory, NetworkInterface
from autotune.probes.system import System


def cpu(system: System) -> Cpu:
    """Processors by ``sysctl``. Apple numbers efficiency cores first (perflevel1), then performance cores."""
    facts = _sysctl(system)
    brand = facts.get("machdep.cpu.brand_string", "unknown")
    vendor = next((name for name in ("apple", "intel") if name in brand.lower()), "unknown")
    online, cores = _number(facts, "hw.logicalcpu", system.cpu_count()), _number(facts, "hw.physicalcpu", 1)
    slow = _number(facts, "hw.perflevel1.logicalcpu", 0)
    threads = max(1, online // cores)
    kinds = ["efficiency"] * slow + ["performance" if slow else "uniform"] * (online - slow)
    return Cpu(
        vendor=vendor,
        model=brand,
        family=families.slug(brand.lower().removeprefix("apple ")) if vendor == "apple" else "unknown",
        architecture=system.machine,
        features=families.features({"Features": _features(facts)}),
        logical=tuple(LogicalCpu(id, 0, id // threads, None, kind) for id, kind in enumerate(kinds)),
        caches=(),
        nodes=(),
    )


def memory(system: System) -> Memory:
    """Memory by ``sysctl`` and ``vm_stat``: free, inactive and speculative pages count as available."""
    facts = _sysctl(system)
    pages = system.run(["vm_stat"], timeout=5).stdout
    size = re.search(r"page size of (\d+) bytes", pages)
    counts = re.findall(r"^Pages (?:free|inactive|speculative):\s+(\d+)\.", pages, re.MULTILINE)
    total = int(facts["hw.memsize"])
    available = sum(map(int, counts)) * int(size[1]) if size else total
    return Memory(total, total, "hw.memsize", min(available, total), 0, None, None, None, None, None)


def network(system: System) -> tuple[NetworkInterface, ...]:
    """Interfaces by psutil, which knows the platform's system calls."""
    import psutil

    return tuple(
        NetworkInterface(name, stats.isup, name.startswith("lo"), stats.speed * 1_000_000 or None)
        for name, stats in sorted(psutil.net_if_stats().items())
    )


def on_battery(system: System) -> bool:
    """Whether ``pmset`` says that the battery is the power source."""
    return "'Battery Power'" in system.run(["pmset", "-g", "batt"], timeout=5).stdout


def _sysctl(system: System) -> dict[str, str]:
    lines = system.run(["sysctl", "hw", "machdep.cpu"], timeout=5).stdout.splitlines()
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _number(facts: dict[str, str], name: str, default: int) -> int:
    return int(facts[name]) if facts.get(name, "").isdecimal() else default


def _features(facts: dict[str, str]) -> str:
    """Apple's ``hw.optional`` names in the words Linux has for them; Intel Macs list theirs in machdep."""
    names = {
        "hw.optional.arm.FEAT_BF16": "bf16",
        "hw.optional.arm.FEAT_I8MM": "i8mm",
        "hw.optional.arm.FEAT_SME": "sme",
    }
    arm = (
        ["asimd", *(word for name, word in names.items() if facts.get(name) == "1")]
        if "hw.optional.arm64" in facts
        else []
    )
    intel = f"{facts.get('machdep.cpu.features', '')} {facts.get('machdep.cpu.leaf7_features', '')}".lower()
    return " ".join([*arm, *intel.replace("avx1.0", "avx").split()])
