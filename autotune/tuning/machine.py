"""The machine during a run: whether its CPUs stay the same, and who else uses them."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace

from autotune.errors import MachineChanged
from autotune.probes import budget
from autotune.probes.cpu import online_cpus
from autotune.probes.facts import Inventory
from autotune.probes.processes import Process, below, cpu_time, may_use, processes, taken
from autotune.probes.system import System
from autotune.stats.load import MENTIONED, Load, Neighbour
from autotune.stats.proof import QUIET_CPUS

QUIET_SECONDS = 5.0
"""How long other processes must be quiet before a run that waits for it begins."""
Key = tuple[int, float]


@contextlib.contextmanager
def same_cpus(inventory: Inventory, system: System | None = None) -> Iterator[None]:
    """Compare the CPUs and the quota of this process with ``inventory`` at the end of a ``with`` block.

    Masks, cpusets and quotas may change while a run measures, and CPUs may go offline.

    Raises:
        MachineChanged: they are others; also in the place of an error that came of it.
    """
    try:
        yield
    finally:
        _compare_cpus(inventory, system or System())


def _compare_cpus(inventory: Inventory, system: System) -> None:
    before = inventory.budget
    online = set(online_cpus(system))
    logical = tuple(each for each in inventory.cpu.logical if each.id in online)
    now = budget.probe(system, replace(inventory.cpu, logical=logical))
    if (now.cpus, now.quota) != (before.cpus, before.quota):
        raise MachineChanged(
            f"the CPUs of this run changed while it measured: {before.limit} before, {now.limit} now. Figures from"
            " before and after cannot be compared. Start it again."
        )


class Neighbours:
    """Measures the CPU time of others from its construction on. What this process starts is no neighbour.

    Args:
        system: the machine.
        clock: seconds.
        own: the process that tunes; this one if None.
    """

    def __init__(
        self, system: System | None = None, clock: Callable[[], float] = time.monotonic, own: int | None = None
    ) -> None:
        self._system, self._clock = system or System(), clock
        self._own = own or self._system.pid()
        self._started = clock()
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
        others, stolen = taken(self._time, now, threads)
        return Load(others, stolen, names, threads)

    def _names(self, seen: list[Process]) -> tuple[Neighbour, ...]:
        """Return the others that run now and took something worth a word, with their children that have ended."""
        seconds = max(self._clock() - self._started, 1e-9)
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


def wait_until_quiet(
    most: float,
    threads: int,
    measure: Callable[[], Neighbours] = Neighbours,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Return when other processes took little of the CPUs for `QUIET_SECONDS`, or after ``most`` seconds."""
    deadline = clock() + most
    while (left := deadline - clock()) > 0:
        neighbours = measure()
        sleep(min(QUIET_SECONDS, left))
        if neighbours.load(threads).cpus <= QUIET_CPUS:
            return


def _key(process: Process) -> Key:
    return process.pid, process.created
