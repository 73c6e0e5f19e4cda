"""The machine during a run: whether its CPUs stay the same, and who else uses them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

from autotune.errors import MachineChanged
from autotune.probes import budget
from autotune.probes.cpu import online_cpus
from autotune.probes.facts import Cpu, CpuBudget, Inventory
from autotune.probes.processes import Process, below, cpu_time, may_use, processes, taken
from autotune.probes.system import System
from autotune.stats.load import MENTIONED, Load, Neighbour
from autotune.stats.proof import QUIET_CPUS
from autotune.tuning.events import Event, Observer

SAMPLE_SECONDS = 5.0
"""Between two looks at all processes, at least..."""
SAMPLE_SHARE = 0.01
"""...and looks take no more than this share of the time: machines with many cores have thousands of processes."""
QUIET_SECONDS = 5.0
"""How long other processes must be quiet before a run that waits for it begins."""
Key = tuple[int, float]


def on_the_same_cpus(inventory: Inventory, observe: Observer, read: Callable[[], CpuBudget] | None = None) -> Observer:
    """Return an observer that calls ``observe`` and looks at the CPUs at each event: nothing is timed then.

    Masks, cpusets and quotas may change while a run measures.

    Args:
        inventory: the machine as the run began.
        observe: called with each event.
        read: gives what this process may use now; the kernel is asked if None.

    Returns:
        An observer that raises `MachineChanged` if CPUs or quota are others than in ``inventory``.
    """
    read = read or (lambda: budget_now(System(), inventory.cpu))
    before = inventory.budget

    def both(event: Event) -> None:
        now = read()
        if (now.cpus, now.quota) != (before.cpus, before.quota):
            raise MachineChanged(
                f"the CPUs of this run changed while it measured: {before.limit} before, {now.limit} now. Figures from"
                " before and after cannot be compared. Start it again."
            )
        observe(event)

    return both


def budget_now(system: System, cpu: Cpu) -> CpuBudget:
    """Return what this process may use of ``cpu`` now, without CPUs that went offline."""
    online = set(online_cpus(system))
    return budget.probe(system, replace(cpu, logical=tuple(each for each in cpu.logical if each.id in online)))


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
        self._started = self._sampled = clock()
        seen = processes(self._system)
        self._time = cpu_time(self._system, seen, self._own)
        self._before = {_key(each): each for each in seen}
        self._cost = clock() - self._started
        """Seconds of one look."""
        self._latest = dict(self._before)
        self._ours: set[Key] = set()

    def observing(self, observe: Observer) -> Observer:
        """Return an observer that calls ``observe`` and looks at the processes at events: nothing is timed then."""

        def both(event: Event) -> None:
            if self._clock() - self._sampled >= max(SAMPLE_SECONDS, self._cost / SAMPLE_SHARE):
                self._look()
            observe(event)

        return both

    def load(self, threads: int) -> Load:
        """Return what others took so far, while ``threads`` busy threads fit into the CPU budget.

        If the kernel does not count CPU time (macOS, some sandboxes), only processes that were seen alive count.
        """
        seen = self._look()
        now, names = cpu_time(self._system, seen, self._own), self._names(seen)
        if now is None or self._time is None:
            return Load(sum(each.cpus for each in names), 0.0, names, threads)
        others, stolen = taken(self._time, now, threads)
        return Load(others, stolen, names, threads)

    def _look(self) -> list[Process]:
        self._sampled = self._clock()
        seen = processes(self._system)
        ours = below(seen, self._own)
        self._ours |= {_key(each) for each in seen if each.pid in ours}
        self._latest |= {_key(each): each for each in seen}
        return seen

    def _names(self, seen: list[Process]) -> tuple[Neighbour, ...]:
        """Return the others that took something worth a word, with their children that were never seen alive."""
        seconds = max(self._clock() - self._started, 1e-9)
        alive, counted = {_key(each) for each in seen}, defaultdict[int, float](float)
        for key, each in self._latest.items():
            if key not in alive:  # its parent holds the time of its whole life now
                counted[each.parent] += each.seconds + each.ended
        found = []
        for key, each in self._latest.items():
            before = self._before.get(key, replace(each, seconds=0.0, ended=0.0))
            children = max(0.0, each.ended - before.ended - counted[each.pid])
            cpus = (each.seconds - before.seconds + children) / seconds
            if key not in self._ours and cpus >= MENTIONED and may_use(self._system, each.pid, self._system.affinity()):
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
