"""The machine during a run: whether its CPUs stay the same, and who else uses them."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from autotune.errors import MachineChanged
from autotune.probes import budget
from autotune.probes.cpu import online_cpus
from autotune.probes.cpu_time import Process, below, cpu_time, may_use, processes, taken
from autotune.probes.facts import Inventory
from autotune.probes.system import System
from autotune.stats.load import MENTIONED, Load, Neighbour
from autotune.stats.proof import QUIET_CPUS

QUIET_SECONDS = 5.0
"""How long other processes must be quiet before a run that waits for it begins."""


@contextlib.contextmanager
def same_cpus(inventory: Inventory, system: System | None = None) -> Iterator[None]:
    """Compare the CPUs and the quota of this process with ``inventory`` at the end of a ``with`` block.

    Masks, cpusets and quotas may change while a run measures, and CPUs may go offline.

    Raises:
        MachineChanged: they changed; also in place of an error that this caused.
    """
    try:
        yield
    finally:
        system, before = system or System(), inventory.budget
        online = set(online_cpus(system))
        logical = tuple(each for each in inventory.cpu.logical if each.id in online)
        now = budget.probe(system, replace(inventory.cpu, logical=logical))
        if (now.cpus, now.quota) != (before.cpus, before.quota):
            said = f"the CPUs of this run changed while it measured: {before.limit} before, {now.limit} now"
            raise MachineChanged(f"{said}. Figures cannot be compared: start it again")


class Neighbours:
    """Measures the CPU time of others from its construction on. What this process starts is no neighbour.

    Args:
        system: the machine.
    """

    def __init__(self, system: System | None = None) -> None:
        self._system = system or System()
        self._own = self._system.pid()
        self._started = time.monotonic()
        seen = processes(self._system)
        self._time = cpu_time(self._system, seen, self._own)
        self._before = {_key(each): each for each in seen}

    def load(self, threads: int) -> Load:
        """Return what others took so far, while ``threads`` busy threads fit into the CPU budget.

        If the kernel does not count CPU time (macOS, some sandboxes), only processes that run now count.
        """
        seen = processes(self._system)
        now, names = cpu_time(self._system, seen, self._own), self._names(seen)
        if now is None or self._time is None:
            return Load(sum(each.cpus for each in names), 0.0, names, threads)
        others, steal = taken(self._time, now, threads)
        return Load(others, steal, names, threads)

    def _names(self, seen: list[Process]) -> tuple[Neighbour, ...]:
        """Return the others that run now and took enough to be named, with their children that have ended."""
        seconds = max(time.monotonic() - self._started, 1e-9)
        alive, ours, counted = {_key(each) for each in seen}, below(seen, self._own), defaultdict[int, float](float)
        for key, each in self._before.items():
            if key not in alive:  # its parent holds the time of its whole life now
                counted[each.parent] += each.seconds + each.ended
        found = []
        for each in seen:
            before = self._before.get(_key(each), replace(each, seconds=0.0, ended=0.0))
            children = max(0.0, each.ended - before.ended - counted[each.pid])
            cpus = (each.seconds - before.seconds + children) / seconds
            if each.pid not in ours and cpus >= MENTIONED and may_use(self._system, each.pid, self._system.affinity()):
                found.append(Neighbour(each.pid, each.name, each.niceness, cpus))
        return tuple(sorted(found, key=lambda each: -each.cpus))


def wait_until_quiet(most: float, threads: int) -> None:
    """Return when other processes took little of the CPUs for `QUIET_SECONDS`, or after ``most`` seconds."""
    deadline = time.monotonic() + most
    while (left := deadline - time.monotonic()) > 0:
        neighbours = Neighbours()
        time.sleep(min(QUIET_SECONDS, left))
        if neighbours.load(threads).cpus <= QUIET_CPUS:
            return


def _key(process: Process) -> tuple[int, float]:
    return process.pid, process.created
