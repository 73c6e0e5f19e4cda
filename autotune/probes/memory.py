"""Host memory: installed, allowed by cgroups, available; and the number of OOM kills."""

from __future__ import annotations

import re
from collections.abc import Iterator

from autotune.probes.budget import ancestors
from autotune.probes.facts import Memory
from autotune.probes.system import System

_FILES = {
    # version of control groups: limits, usage, how sums over a group's children begin in memory.stat
    1: (("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_"),
    2: (("memory.max", "memory.high"), "memory.current", ""),
}
_KILLS = {1: "memory.oom_control", 2: "memory.events"}


def probe(system: System) -> Memory:
    """Return memory in bytes; ``available`` is what is left under the tightest limit."""
    if system.platform == "darwin":
        import psutil

        mac = psutil.virtual_memory()
        return Memory(mac.total, mac.total, "hw.memsize", mac.available)
    info = parse_meminfo(system.read("/proc/meminfo") or "")
    total = info["MemTotal"]
    limits = [each for each in _group_limits(system) if each[0] < total]
    limit, _, source = min(limits, default=(total, 0, "MemTotal"))
    left = [max(0, most - used) for most, used, _ in limits]
    shm = system.space("/dev/shm")
    huge = re.search(r"\[(\w+)\]", system.read("/sys/kernel/mm/transparent_hugepage/enabled") or "")
    return Memory(
        total=total,
        limit=limit,
        limit_source=source,
        available=min([info["MemAvailable"], *left]),
        shm_total=shm[0] if shm else None,
        shm_free=shm[1] if shm else None,
        transparent_hugepages=huge[1] if huge else None,
    )


def oom_kills(system: System) -> int | None:
    """Count the processes that the OOM killer has ended in this process's group; None if there is no counter.

    The innermost group that counts them is read; without one, the whole machine.
    """
    texts = [group.read(system, _KILLS[group.version]) for group in ancestors(system, "memory")]
    lines = (re.search(r"^oom_kill (\d+)$", text or "", re.MULTILINE) for text in (*texts, system.read("/proc/vmstat")))
    return next((int(line[1]) for line in lines if line), None)


def parse_meminfo(text: str) -> dict[str, int]:
    """Read ``/proc/meminfo`` in bytes; lines without a unit, such as ``HugePages_Total``, are left out."""
    found = re.findall(r"^([\w()]+):[ \t]+([0-9]+) kB[ \t]*$", text, re.MULTILINE)
    return {name: int(number) * 1024 for name, number in found}


def _group_limits(system: System) -> Iterator[tuple[int, int, str]]:
    """Yield the memory limits on this process's group and its visible ancestors.

    Of each the bytes, those of them that are used and could not be reclaimed, and the file. Version 2 stalls above
    ``memory.high``; version 1 also has the limits of ancestors that are hidden.
    """
    for group in ancestors(system, "memory"):
        limits, usage, prefix = _FILES[group.version]
        text = group.read(system, "memory.stat") or ""
        stat = dict(re.findall(r"^(\w+) ([0-9]+)$", text, re.MULTILINE))
        # The kernel drops file cache and reclaimable slab before it kills.
        cache = [stat.get(prefix + name, 0) for name in ("inactive_file", "active_file", "slab_reclaimable")]
        used = max(0, int(group.read(system, usage) or 0) - sum(map(int, cache)))
        texts = {name: group.read(system, name) for name in limits}
        texts["hierarchical_memory_limit"] = stat.get("hierarchical_memory_limit")
        for name, limit in texts.items():
            if limit and limit.isdecimal():
                yield int(limit), used, f"cgroup {name}"
