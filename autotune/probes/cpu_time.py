"""The CPU time of this machine: all of it, that of our own processes, and who took the rest.

Short processes are never seen alive. So what others take is all CPU time of the machine minus that of our own process
tree. Each process also holds the time of its children that have ended. Names only illustrate the total.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autotune.probes import budget
from autotune.probes.cpu import parse_cpu_list
from autotune.probes.system import System

TICK = 0.01
"""Seconds: the unit of CPU times in ``/proc`` on every architecture that PyTorch supports."""


@dataclass(frozen=True)
class Process:
    """One process at one time."""

    pid: int
    parent: int
    created: float
    """Seconds since the machine started; with ``pid`` it identifies a process for good."""
    name: str
    """The program's; empty if the process belongs to another user."""
    niceness: int
    """-20 to 19; above 0 it yields to what has less."""
    seconds: float
    """CPU time used so far."""
    ended: float = 0.0
    """CPU time used by its children that have ended, and by theirs."""


@dataclass(frozen=True)
class CpuTime:
    """CPU seconds up to one moment, on the processors that this process may use."""

    clock: float
    """Seconds of the clock, as the processors count them."""
    used: float
    """By all processes and by interrupts."""
    steal: float
    """By other guests of the hypervisor."""
    own: float
    """By one's own process tree."""
    group: float | None
    """By the control group whose CPU quota is the tightest; None without a quota."""
    cpus: int
    """Number of these processors."""


def processes(system: System, pids: Iterable[int] | None = None) -> list[Process]:
    """Return those of ``pids`` that can be seen, or all processes if it is None; none on macOS, without ``/proc``."""
    if pids is None:
        pids = (int(name) for name in system.list("/proc") if name.isdecimal())
    return [each for pid in pids if (each := _process(system, pid)) is not None]


def below(seen: Sequence[Process], root: int) -> set[int]:
    """Return the process ids of ``root`` and all below it."""
    found: set[int] = set()
    more = {root}
    while more:
        found |= more
        more = {each.pid for each in seen if each.parent in more} - found
    return found


def cpu_time(system: System, seen: Sequence[Process], root: int) -> CpuTime | None:
    """Read the machine's CPU time; None if the kernel does not count it.

    ``root`` is the process whose tree is one's own, among all that are ``seen`` now.
    """
    mask, clock, used, steal, count = system.affinity(), 0, 0, 0, 0
    for cpu, text in re.findall(r"^cpu(\d+) ([\d ]+)$", system.read("/proc/stat") or "", re.MULTILINE):
        if int(cpu) in mask:
            ticks = [int(field) for field in text.split()[:8]]  # guests, which follow, are counted in user and nice
            clock, count = clock + sum(ticks), count + 1
            used += sum(ticks[:3]) + sum(ticks[5:7])  # user, nice, system; interrupts, hard and soft
            steal += sum(ticks[7:])
    if not clock:
        return None
    ours = below(seen, root)
    own = sum(each.seconds + each.ended for each in seen if each.pid in ours)
    return CpuTime(clock * TICK / count, used * TICK, steal * TICK, own, budget.quota_seconds(system), count)


def taken(before: CpuTime, now: CpuTime, threads: int) -> tuple[float, float]:
    """Return how many processors others kept busy on average: other processes, and other guests of the hypervisor.

    Args:
        before: at the beginning.
        now: at the end.
        threads: that the CPU budget allows. If a quota makes them fewer than the processors, others may keep the rest
            busy and take nothing; what shares the quota takes from it.
    """
    seconds = max(now.clock - before.clock, TICK)
    own = now.own - before.own
    others = now.used - before.used - own - max(0, now.cpus - threads) * seconds
    if now.group is not None and before.group is not None:
        others = max(others, now.group - before.group - own)
    return max(0.0, others) / seconds, (now.steal - before.steal) / seconds


def may_use(system: System, pid: int, cpus: frozenset[int]) -> bool:
    """Return False if the process is bound to other processors than ``cpus``."""
    match = re.search(r"^Cpus_allowed_list:\s*(\S+)$", system.read(f"/proc/{pid}/status") or "", re.MULTILINE)
    return match is None or not cpus.isdisjoint(parse_cpu_list(match[1]))


def _process(system: System, pid: int) -> Process | None:
    """Read ``/proc/PID/stat``, in which the name may hold any letters; None if the process has ended."""
    before, _, after = (system.read(f"/proc/{pid}/stat") or "").rpartition(")")
    fields, owner = after.split(), system.stat(f"/proc/{pid}")
    if len(fields) < 20 or owner is None:
        return None
    user, kernel, children_user, children_kernel = (int(field) * TICK for field in fields[11:15])
    return Process(
        pid=pid,
        parent=int(fields[1]),
        created=int(fields[19]) * TICK,
        name=before.partition("(")[2] if owner.st_uid == system.uid() else "",
        niceness=int(fields[16]),
        seconds=user + kernel,
        ended=children_user + children_kernel,
    )
