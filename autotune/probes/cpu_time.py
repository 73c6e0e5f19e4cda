"""The CPU time of this machine: all of it, that of our own processes, and who took the rest.

Short processes are never seen alive. So what others take is all CPU time of the machine minus that of our own process
tree. Each process also holds the time of its children that have ended. Names only illustrate the total.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.probes import budget
from autotune.probes.cpu import parse_cpu_list
from autotune.probes.system import System

TICK = 0.01
"""Seconds: the unit of CPU times in ``/proc`` on every architecture that PyTorch supports."""
MENTIONED = 0.1
"""Processors that others keep busy before that is reported..."""
SERVICES = 0.01
"""...and share of the CPUs: large machines have many services of their own."""
MOST_OF_A_MACHINE = 0.5
"""A machine is busy if others take at least this share of the CPUs: figures no longer describe the machine."""


@dataclass(frozen=True)
class Process:
    """One process at one time."""

    pid: int
    parent: int
    name: str
    """The program's; empty if the process belongs to another user."""
    niceness: int
    """-20 to 19; above 0 it yields to what has less."""
    seconds: float
    """CPU time used so far."""
    ended: float = 0.0
    """CPU time used by its children that have ended, and by theirs."""

    @property
    def total(self) -> float:
        """Return both."""
        return self.seconds + self.ended


@dataclass(frozen=True)
class Neighbour:
    """Another process.

    Attributes:
        pid: its process id.
        name: empty if it belongs to another user.
        niceness: above 0 it yields to what has less.
        cpus: processors that it kept busy on average, with its ended children.
    """

    pid: int
    name: str
    niceness: int
    cpus: float


@dataclass(frozen=True)
class Load:
    """CPU time that others took meanwhile. `autotune.tuning.notes` puts it in words.

    Attributes:
        taken: processors that all other processes kept busy on average, short ones included.
        steal: processors that other guests of the hypervisor kept busy on average.
        neighbours: processes that were seen: an illustration of ``taken``, never all of it.
        threads: that the CPU budget allows.
        waited: processors that one's own threads were ready for on average while other processes ran. A neighbour that
            yields takes nothing from them.
    """

    taken: float = 0.0
    steal: float = 0.0
    neighbours: tuple[Neighbour, ...] = ()
    threads: int = 1
    waited: float = 0.0

    @property
    def cpus(self) -> float:
        """Return the processors that others of either kind kept busy."""
        return self.taken + self.steal

    @property
    def wait_share(self) -> float:
        """Return the share of the CPUs' time, 0..1, that one's own threads waited for because of others."""
        return min(1.0, (self.waited + self.steal) / self.threads)

    @property
    def is_busy(self) -> bool:
        """Return True if figures measured meanwhile are those of a busy machine."""
        return self.cpus > MOST_OF_A_MACHINE * self.threads

    def is_mentioned(self, cpus: float) -> bool:
        """Return True for more than a machine's own services take."""
        return cpus >= max(MENTIONED, SERVICES * self.threads)


QUIET = Load()


class Neighbours:
    """Measures the CPU time of others from its construction on, on the processors that this process may use.

    Args:
        root: it and all below it are no neighbours; this process by default.
        tree: returns the processes of ``root``. If it is given, only they are looked at, and nobody is named: all of a
            large machine take long.
        system: the machine.
    """

    def __init__(
        self, root: int | None = None, tree: Callable[[int], Iterable[int]] | None = None, system: System | None = None
    ) -> None:
        self._system = system or System()
        self._root, self._tree = self._system.pid() if root is None else root, tree
        self._before = self._now()

    def load(self, threads: int | None = None) -> Load:
        """Return what others took so far.

        If the kernel does not count CPU time (macOS, some sandboxes), only processes that run now count.

        Args:
            threads: that the CPU budget allows; as many as there are processors by default. If a quota makes them
                fewer, others may keep the rest busy and take nothing; what shares the quota takes from it.
        """
        before, now = self._before, self._now()
        seconds, threads = max(now.clock - before.clock, TICK), now.cpus if threads is None else threads
        own = now.own - before.own + TICK * len(now.ours)  # whole ticks count: each may seem up to one short
        others = now.used - before.used - own - max(0, now.cpus - threads) * seconds
        if now.group is not None and before.group is not None:
            others = max(others, now.group - before.group - own)
        names = self._names(before, now, seconds)
        taken = max(0.0, others) / seconds if now.used else sum(each.cpus for each in names)
        waited = sum(wait - before.waits.get(thread, 0.0) for thread, wait in now.waits.items()) / seconds
        waited = min(taken, waited) if now.waits else taken
        return Load(taken, (now.steal - before.steal) / seconds, names, threads, waited)

    def _names(self, before: _Moment, now: _Moment, seconds: float) -> tuple[Neighbour, ...]:
        """Return the others that run now and took enough to be named, with their children that have ended."""
        counted, found = defaultdict[int, float](float), []
        for gone in before.seen.keys() - now.seen.keys():  # the parent holds the time of its whole life now
            counted[before.seen[gone].parent] += before.seen[gone].total
        for pid, each in now.seen.items():
            earlier = before.seen.get(pid, replace(each, seconds=0.0, ended=0.0))
            children = max(0.0, each.ended - earlier.ended - counted[pid])
            cpus = (each.seconds - earlier.seconds + children) / seconds
            if pid not in now.ours and cpus >= MENTIONED and _may_use(self._system, pid):
                found.append(Neighbour(pid, each.name, each.niceness, cpus))
        return tuple(sorted(found, key=lambda each: -each.cpus))

    def _now(self) -> _Moment:
        """Read the CPU time that everybody has used so far."""
        system, mask, clock, used, steal, count = self._system, self._system.affinity(), 0, 0, 0, 0
        for cpu, text in re.findall(r"^cpu(\d+) ([\d ]+)$", system.read("/proc/stat") or "", re.MULTILINE):
            if int(cpu) in mask:
                ticks = [int(field) for field in text.split()[:8]]  # guests, which follow, are counted in user and nice
                clock, count = clock + sum(ticks), count + 1
                used += sum(ticks[:3]) + sum(ticks[5:7])  # user, nice, system; interrupts, hard and soft
                steal += sum(ticks[7:])
        seen = processes(system, None if self._tree is None else self._tree(self._root))
        ours = _below(seen, self._root)
        return _Moment(
            clock=clock * TICK / count if clock else time.monotonic(),
            cpus=count or len(mask),
            used=used * TICK,
            steal=steal * TICK,
            group=budget.quota_seconds(system),
            own=sum(each.total for each in seen if each.pid in ours),
            ours=ours,
            seen={each.pid: each for each in seen},
            waits=_waits(system, ours),
        )


@dataclass(frozen=True)
class _Moment:
    """CPU seconds up to one moment, on the processors that this process may use.

    Attributes:
        clock: seconds of the clock, as the processors count them.
        cpus: number of these processors.
        used: by all processes and by interrupts; 0 if the kernel does not count it.
        steal: by other guests of the hypervisor.
        group: by the control group whose CPU quota is the tightest; None without a quota.
        own: by one's own process tree.
        ours: its process ids.
        seen: processes by process id.
        waits: seconds that each own thread was ready and waited; empty if the kernel does not count that.
    """

    clock: float
    cpus: int
    used: float
    steal: float
    group: float | None
    own: float
    ours: set[int]
    seen: Mapping[int, Process]
    waits: Mapping[str, float]


def processes(system: System, pids: Iterable[int] | None = None) -> list[Process]:
    """Return those of ``pids`` that can be seen, or all processes if it is None; none on macOS, without ``/proc``."""
    if pids is None:
        pids = (int(name) for name in system.list("/proc") if name.isdecimal())
    return [each for pid in pids if (each := _process(system, pid)) is not None]


def _process(system: System, pid: int) -> Process | None:
    """Read ``/proc/PID/stat``, in which the name may hold any letters; None if the process has ended."""
    before, _, after = (system.read(f"/proc/{pid}/stat") or "").rpartition(")")
    fields, owner = after.split(), system.stat(f"/proc/{pid}")
    if len(fields) < 17 or owner is None:
        return None
    user, kernel, children_user, children_kernel = (int(field) * TICK for field in fields[11:15])
    return Process(
        pid=pid,
        parent=int(fields[1]),
        name=before.partition("(")[2] if owner.st_uid == system.uid() else "",
        niceness=int(fields[16]),
        seconds=user + kernel,
        ended=children_user + children_kernel,
    )


def _below(seen: Sequence[Process], root: int) -> set[int]:
    """Return the process ids of ``root`` and all below it."""
    found: set[int] = set()
    more = {root}
    while more:
        found |= more
        more = {each.pid for each in seen if each.parent in more} - found
    return found


def _waits(system: System, pids: Iterable[int]) -> dict[str, float]:
    """Return the seconds that each thread of ``pids`` has waited for a processor."""
    found = dict[str, float]()
    for pid in pids:
        for thread in system.list(f"/proc/{pid}/task"):
            if (text := system.read(f"/proc/{pid}/task/{thread}/schedstat")) is not None:
                found[thread] = int(text.split()[1]) / 1e9
    return found


def _may_use(system: System, pid: int) -> bool:
    """Return False if the process is bound to other processors than this one."""
    match = re.search(r"^Cpus_allowed_list:\s*(\S+)$", system.read(f"/proc/{pid}/status") or "", re.MULTILINE)
    return match is None or not system.affinity().isdisjoint(parse_cpu_list(match[1]))
