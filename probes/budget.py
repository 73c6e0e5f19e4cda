"""How much this process may use: CPUs, and which limit decides; processes.

Most limits are those of control groups, version 1, version 2 or both at once. A limit may sit on any ancestor, every
version-1 controller may have a path of its own, and inside a container the path in ``/proc/self/cgroup`` is often the
host's and cannot be seen: then the root of the mount is our own group.
"""

from __future__ import annotations

import math
import posixpath
import re
from dataclasses import dataclass

from autotune.probes.cpu import parse_cpu_list
from autotune.probes.facts import Cpu, CpuBudget, LogicalCpu, ResourceLimits
from autotune.probes.system import System


@dataclass(frozen=True)
class Mount:
    """One line of ``/proc/self/mountinfo``: which part (``root``) of what is seen at ``point``."""

    root: str
    point: str
    filesystem: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """One control group folder and the version of its hierarchy (1 or 2)."""

    folder: str
    version: int

    def read(self, system: System, name: str) -> str | None:
        """Return the text of one of its files, or None."""
        return system.read(posixpath.join(self.folder, name))


def probe(system: System, cpu: Cpu, mask: frozenset[int] | None = None) -> CpuBudget:
    """Return the smallest of online CPUs, affinity mask, cpuset and CPU quota (tightest of all ancestors), at least 1.

    Args:
        system: where to look.
        cpu: the processors.
        mask: the affinity mask to go by; this process's own if None.
    """
    online = {logical.id for logical in cpu.logical}
    mask, cpuset = system.affinity() if mask is None else mask, _cpuset(system)
    allowed = _allowed(online, mask, cpuset)
    quota = cpu_quota(system)
    threads = max(1, min(len(allowed), math.floor(quota) if quota is not None else len(allowed)))
    usable = [logical for logical in cpu.logical if logical.id in allowed]
    return CpuBudget(
        cpus=tuple(sorted(allowed)),
        quota=quota,
        threads=threads,
        cores=min(_cores(usable) or threads, threads),
        performance_cores=min(_cores([c for c in usable if c.kind != "efficiency"]), threads) if usable else threads,
        limit=_limit(online, cpuset, allowed, quota),
    )


def resource_limits(system: System) -> ResourceLimits:
    """Return how many processes this one and its cgroups may have."""
    texts = [group.read(system, "pids.max") for group in ancestors(system, "pids")]
    candidates = [(int(text), "cgroup pids.max") for text in texts if text and text.isdecimal()]
    own = (system.rlimit("RLIMIT_NPROC") or (None, None))[0]
    if own is not None and system.uid() != 0:  # does not apply to root
        candidates.append((own, "RLIMIT_NPROC"))
    return ResourceLimits(*min(candidates, default=(None, "unlimited")))


def cpu_quota(system: System) -> float | None:
    """Return the CPUs' worth of time of the tightest visible group, or None."""
    quotas = (_quota(system, group) for group in ancestors(system, "cpu"))
    return min((quota for quota in quotas if quota is not None), default=None)


def quota_seconds(system: System) -> float | None:
    """Return the CPU seconds used so far by the group with the tightest quota; None without a quota or a counter."""
    groups = ancestors(system, "cpu")
    quotas = ((_quota(system, group), place) for place, group in enumerate(groups))
    found = [(quota, place) for quota, place in quotas if quota is not None]
    if not found:
        return None
    place = min(found)[1]
    if groups[place].version == 2:
        match = re.search(r"^usage_usec (\d+)$", groups[place].read(system, "cpu.stat") or "", re.MULTILINE)
        return int(match[1]) / 1e6 if match else None
    counters = ancestors(system, "cpuacct")
    text = counters[place].read(system, "cpuacct.usage") if len(counters) == len(groups) else None
    return int(text) / 1e9 if text and text.isdecimal() else None


def _quota(system: System, group: Group) -> float | None:
    """Return the CPUs' worth of time that a group may take; None if it has no quota."""
    if group.version == 2:
        return parse_quota(group.read(system, "cpu.max") or "max")
    quota, period = group.read(system, "cpu.cfs_quota_us"), group.read(system, "cpu.cfs_period_us")
    return parse_quota(f"{quota} {period}") if quota else None


def parse_quota(text: str) -> float | None:
    """Read ``<quota> <period>`` microseconds as CPUs; None for ``max`` or -1."""
    quota, _, period = text.partition(" ")
    return None if quota in ("max", "-1") else int(quota) / int(period)


def _cpuset(system: System) -> frozenset[int] | None:
    """Return the CPUs that every visible cpuset allows, or None if there is no cpuset."""
    found: frozenset[int] | None = None
    for group in ancestors(system, "cpuset"):
        names = ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus")
        text = next(filter(None, (group.read(system, name) for name in names)), None)
        if text:
            listed = frozenset(parse_cpu_list(text))
            found = listed if found is None else found & listed
    return found


def _allowed(online: set[int], *limits: frozenset[int] | None) -> set[int]:
    """Return the online CPUs that every limit allows. One that shares no CPU with the others is wrong and ignored."""
    allowed = online or set(limits[0] or {0})
    for limit in limits:
        if limit is not None and allowed & limit:
            allowed = allowed & limit
    return set(allowed)


def _cores(logical: list[LogicalCpu]) -> int:
    return len({(cpu.package, cpu.core) for cpu in logical})


def _limit(online: set[int], cpuset: frozenset[int] | None, allowed: set[int], quota: float | None) -> str:
    """Name the tightest limit. A cpuset also narrows the mask, so the cpuset is named if both fit."""
    if quota is not None and math.floor(quota) < len(allowed):
        return f"cgroup CPU quota {quota:g}"
    if len(allowed) == len(online):
        return f"{len(online)} online CPU{'s' if len(online) != 1 else ''}"
    by_cpuset = cpuset is not None and online & cpuset == allowed
    return f"{'cpuset' if by_cpuset else 'affinity mask'} ({len(allowed)} of {len(online)} CPUs)"


# Control groups -------------------------------------------------------------------------------------------------------


def parse_membership(text: str) -> dict[str, str]:
    """Read ``/proc/self/cgroup`` as controller -> path; version 2 has the empty controller name."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                found[controller] = parts[2]
    return found


def parse_mounts(text: str) -> tuple[Mount, ...]:
    """Read ``/proc/self/mountinfo``; lines that do not read as mounts are left out."""
    mounts = []
    for line in text.splitlines():
        left, separator, right = line.partition(" - ")
        before, after = left.split(" "), right.split(" ")
        if separator and len(before) >= 6 and len(after) >= 3:
            mounts.append(Mount(_unescape(before[3]), _unescape(before[4]), after[0], tuple(after[2].split(","))))
    return tuple(mounts)


def ancestors(system: System, controller: str) -> tuple[Group, ...]:
    """Return this process's group for a controller and every visible ancestor, innermost first, if any."""
    membership = parse_membership(system.read("/proc/self/cgroup") or "")
    mounts = parse_mounts(system.read("/proc/self/mountinfo") or "")
    # On hybrid hosts version 1 owns the controllers it lists, so it is asked first.
    for version, name, filesystem in ((1, controller, "cgroup"), (2, "", "cgroup2")):
        path = membership.get(name)
        mount = _mount_for(mounts, filesystem, name, path)
        if path is not None and mount is not None:
            return tuple(Group(folder, version) for folder in _folders(system, mount, path))
    return ()


def _mount_for(mounts: tuple[Mount, ...], filesystem: str, controller: str, path: str | None) -> Mount | None:
    """Return the mount that shows the controller, preferably one whose root holds the path."""
    fitting = [m for m in mounts if m.filesystem == filesystem and (not controller or controller in m.options)]
    holding = [m for m in fitting if path is not None and _below(m.root, path) is not None]
    return next(iter(holding or fitting), None)


def _folders(system: System, mount: Mount, path: str) -> list[str]:
    """Return the folders from the group up to the root of the mount, as far as they can be seen."""
    folders = []
    relative = _below(mount.root, path) or ""
    while relative:
        folder = posixpath.join(mount.point, relative)
        if system.exists(folder):
            folders.append(folder)
        relative = posixpath.dirname(relative)
    return [*folders, mount.point]


def _below(root: str, path: str) -> str | None:
    """Return ``path`` relative to ``root``, or None if it lies outside (which a namespace shows as ``/..``)."""
    if ".." in path.split("/"):
        return None
    relative = posixpath.relpath(path, root) if path.startswith("/") and root.startswith("/") else ".."
    if relative.startswith(".."):
        return None
    return "" if relative == "." else relative


def _unescape(text: str) -> str:
    """Undo the kernel's octal for blanks, tabs, newlines and backslashes in paths."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
