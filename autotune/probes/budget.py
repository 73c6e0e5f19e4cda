"""How many CPUs and processes this process may use, and which limit counts.

Most limits are those of control groups, version 1, version 2 or both at once. A limit may be on any ancestor, and every
version-1 controller may have a path of its own. In a container the path in ``/proc/self/cgroup`` is often the host's,
and not visible: then the root of the mount is our own group.
"""

from __future__ import annotations

import math
import posixpath
import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from autotune.probes.cpu import parse_cpu_list
from autotune.probes.facts import Cpu, CpuBudget, LogicalCpu, ResourceLimits
from autotune.probes.system import System


@dataclass(frozen=True)
class ControlGroup:
    """One control group folder and the version of its hierarchy (1 or 2)."""

    folder: str
    version: int

    def read(self, system: System, name: str) -> str | None:
        """Return the text of one of its files, or None."""
        return system.read(posixpath.join(self.folder, name))


def probe(system: System, cpu: Cpu) -> CpuBudget:
    """Return the smallest of online CPUs, affinity mask, cpuset and CPU quota (tightest of all ancestors), at least 1.

    ``cpu`` are the processors.
    """
    online = {logical.id for logical in cpu.logical}
    allowed = online & system.affinity() or online  # the kernel keeps masks in cpusets
    quota, _ = _tightest(system)
    threads = max(1, min(len(allowed), math.floor(quota) if quota is not None else len(allowed)))
    usable = [logical for logical in cpu.logical if logical.id in allowed]
    return CpuBudget(
        cpus=tuple(sorted(allowed)),
        quota=quota,
        threads=threads,
        cores=min(_cores(usable) or threads, threads),
        performance_cores=min(_cores([c for c in usable if c.kind != "efficiency"]), threads) if usable else threads,
        limit=_limit(online, _cpuset(system), allowed, quota),
    )


def resource_limits(system: System) -> ResourceLimits:
    """Return how many processes this one and its cgroups may have."""
    texts = [group.read(system, "pids.max") for group in ancestors(system, "pids")]
    candidates = [(int(text), "cgroup pids.max") for text in texts if text and text.isdecimal()]
    own = system.process_limit()
    candidates += [(own, "RLIMIT_NPROC")] if own is not None else []
    return ResourceLimits(*min(candidates, default=(None, "unlimited")))


def quota_seconds(system: System) -> float | None:
    """Return the CPU seconds used so far by the group with the tightest quota; None without a quota or a counter."""
    quota, place = _tightest(system)
    if quota is None:
        return None
    groups, counters = ancestors(system, "cpu"), ancestors(system, "cpuacct")
    if groups[place].version == 2:
        match = re.search(r"^usage_usec (\d+)$", groups[place].read(system, "cpu.stat") or "", re.MULTILINE)
        return int(match[1]) / 1e6 if match else None
    text = counters[place].read(system, "cpuacct.usage") if len(counters) == len(groups) else None
    return int(text) / 1e9 if text and text.isdecimal() else None


def _tightest(system: System) -> tuple[float | None, int]:
    """Return the smallest quota of all visible groups in CPUs, or None, and the place of its group among them."""
    quotas = [(_quota(system, group), place) for place, group in enumerate(ancestors(system, "cpu"))]
    return min(((quota, place) for quota, place in quotas if quota is not None), default=(None, 0))


def _quota(system: System, group: ControlGroup) -> float | None:
    """Return the CPUs' worth of time that a group may take; None if it has no quota."""
    if group.version == 2:
        quota, _, period = (group.read(system, "cpu.max") or "max").partition(" ")
    else:
        quota = group.read(system, "cpu.cfs_quota_us") or "-1"
        period = group.read(system, "cpu.cfs_period_us") or ""
    return None if quota in ("max", "-1") else int(quota) / int(period)


def _cpuset(system: System) -> frozenset[int]:
    """Return the CPUs that the innermost visible cpuset allows, which its ancestors do too; none without a cpuset."""
    names = ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus")
    texts = (group.read(system, name) for group in ancestors(system, "cpuset") for name in names)
    return frozenset(parse_cpu_list(next(filter(None, texts), "")))


def _cores(logical: list[LogicalCpu]) -> int:
    """Return the number of physical cores."""
    return len({cpu.core for cpu in logical})


def _limit(online: set[int], cpuset: frozenset[int], allowed: set[int], quota: float | None) -> str:
    """Name the tightest limit. A cpuset also narrows the mask, so the cpuset is named if both fit."""
    if quota is not None and math.floor(quota) < len(allowed):
        return f"cgroup CPU quota {quota:g}"
    if len(allowed) == len(online):
        return f"{len(online)} online CPU{'s' if len(online) != 1 else ''}"
    name = "cpuset" if online & cpuset == allowed else "affinity mask"
    return f"{name} ({len(allowed)} of {len(online)} CPUs)"


# Control groups -------------------------------------------------------------------------------------------------------


def ancestors(system: System, controller: str) -> tuple[ControlGroup, ...]:
    """Return this process's group for a controller and every visible ancestor, innermost first, if any."""
    lines = re.findall(r"^\d+:([^:\n]*):(.*)$", system.read("/proc/self/cgroup") or "", re.MULTILINE)
    membership = {name: path for names, path in lines for name in names.split(",")}  # version 2 has the empty name
    # On hybrid hosts version 1 owns the controllers it lists, so it is read first.
    for version, name, filesystem in ((1, controller, "cgroup"), (2, "", "cgroup2")):
        mounts = _mounts(system, filesystem, name)
        if name in membership and mounts:
            return tuple(ControlGroup(folder, version) for folder in _folders(system, mounts, membership[name]))
    return ()


def _mounts(system: System, filesystem: str, controller: str) -> list[tuple[str, str]]:
    """Return which part of a file system is seen where, for control groups of one kind; of all controllers if empty."""
    text = system.read("/proc/self/mountinfo") or ""
    found = re.findall(r"^\S+ \S+ \S+ (\S+) (\S+) .* - (\S+) \S+ (\S+)$", text, re.MULTILINE)
    mounts = [(root, point, options.split(",")) for root, point, kind, options in found if kind == filesystem]
    return [(root, point) for root, point, options in mounts if not controller or controller in options]


def _folders(system: System, mounts: list[tuple[str, str]], path: str) -> list[str]:
    """Return the folders from the group up to the root of the mount that shows it, as far as they can be seen.

    A path that no mount holds is another namespace's, which is shown as ``/..`` or as the host has it: then the root
    of the first mount is our own group.
    """
    group = PurePosixPath(path)
    for root, point in mounts:
        if group.is_relative_to(root) and ".." not in group.parts:
            relative = group.relative_to(root)
            below = [posixpath.join(point, each) for each in (relative, *relative.parents) if each.parts]
            return [*(folder for folder in below if system.stat(folder) is not None), point]
    return [mounts[0][1]]
