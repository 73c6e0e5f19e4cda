"""Host memory: installed, allowed by cgroups, available; and the number of OOM kills."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from autotune.probes.budget import Group, ancestors
from autotune.probes.facts import Memory
from autotune.probes.system import System

_UNLIMITED = 1 << 60
"""Version 1 writes "no limit" as 2**63 rounded down to a page."""


def probe(system: System) -> Memory:
    """Return memory in bytes; ``available`` is what is left under the tightest limit."""
    if system.platform == "darwin":
        import psutil

        mac = psutil.virtual_memory()
        return Memory(mac.total, mac.total, "hw.memsize", mac.available, None, None, None)
    info = parse_meminfo(system.read("/proc/meminfo") or "")
    total = info["MemTotal"]
    limits = [each for each in group_limits(system) if each[0] < total]
    limit, _, source = min(limits, default=(total, 0, "MemTotal"))
    left = [max(0, most - used) for most, used, _ in limits]
    shm = system.space("/dev/shm")
    return Memory(
        total=total,
        limit=limit,
        limit_source=source,
        available=min([info.get("MemAvailable", info.get("MemFree", 0)), *left]),
        shm_total=shm[0] if shm else None,
        shm_free=shm[1] if shm else None,
        transparent_hugepages=_chosen(system.read("/sys/kernel/mm/transparent_hugepage/enabled")),
    )


def oom_kills(system: System) -> int | None:
    """Count the processes that the OOM killer has ended in this process's group and its visible ancestors.

    Only an increase is meaningful: version 2 counts a kill again in every ancestor. None if there is no counter.
    """
    files = {1: "memory.oom_control", 2: "memory.events"}
    texts = [group.read(system, files[group.version]) for group in ancestors(system, "memory")]
    counts = [count for count in map(_kill_count, texts) if count is not None]
    if counts:
        return sum(counts)
    return _kill_count(system.read("/proc/vmstat"))  # no memory group at all: the whole machine's counter


def parse_meminfo(text: str) -> dict[str, int]:
    """Read ``/proc/meminfo`` in bytes (page counts such as ``HugePages_Total`` as they are); odd lines are left out."""
    found = re.findall(r"^([\w()]+):[ \t]+([0-9]+)( kB)?[ \t]*$", text, re.MULTILINE)
    return {name: int(number) * (1024 if unit else 1) for name, number, unit in found}


def parse_limit(text: str | None) -> int | None:
    """Read a group's limit in bytes; None for ``max``, version 1's sentinel, and what is no number."""
    if text is None or not re.fullmatch(r"[0-9]{1,20}", text) or int(text) >= _UNLIMITED:
        return None
    return int(text)


def group_limits(system: System) -> Iterator[tuple[int, int, str]]:
    """Yield the memory limits on this process's group and its visible ancestors: the bytes, those of them that are used
    and could not be reclaimed, and the file."""
    for group in ancestors(system, "memory"):
        stat = _parse_stat(group.read(system, "memory.stat") or "")
        used = _unreclaimable(group, system, stat)
        for name, limit in _limits(group, system, stat):
            if limit is not None:
                yield limit, used, f"cgroup {name}"


def _limits(group: Group, system: System, stat: dict[str, int]) -> Iterable[tuple[str, int | None]]:
    """List a group's limits. Version 2 stalls above ``memory.high``; version 1 also has those of hidden ancestors."""
    if group.version == 2:
        yield "memory.max", parse_limit(group.read(system, "memory.max"))
        yield "memory.high", parse_limit(group.read(system, "memory.high"))
    else:
        yield "memory.limit_in_bytes", parse_limit(group.read(system, "memory.limit_in_bytes"))
        yield "hierarchical_memory_limit", parse_limit(str(stat.get("hierarchical_memory_limit", "")))


def _unreclaimable(group: Group, system: System, stat: dict[str, int]) -> int:
    """Return usage without file cache and reclaimable slab: the kernel drops those before it kills."""
    usage = parse_limit(group.read(system, "memory.current" if group.version == 2 else "memory.usage_in_bytes")) or 0
    prefix = "" if group.version == 2 else "total_"
    names = ("inactive_file", "active_file", "slab_reclaimable")
    return max(0, usage - sum(stat.get(prefix + name, 0) for name in names))


def _parse_stat(text: str) -> dict[str, int]:
    return {name: int(number) for name, number in re.findall(r"^(\w+) ([0-9]+)$", text, re.MULTILINE)}


def _kill_count(text: str | None) -> int | None:
    match = re.search(r"^oom_kill (\d+)$", text or "", re.MULTILINE)
    return int(match[1]) if match else None


def _chosen(text: str | None) -> str | None:
    """Return the bracketed word of ``always [madvise] never``."""
    match = re.search(r"\[(\w+)\]", text or "")
    return match[1] if match else None
