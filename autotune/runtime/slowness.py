"""What slows training down, seen from two looks at the machine: one when it gets slow, one when that is said."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from autotune.core.load import MENTIONED, Neighbour
from autotune.probes import cgroup
from autotune.probes.processes import Process, below, processes
from autotune.probes.system import System

SWAPPED_BYTES = 2**20
"""So many bytes a second, read from swap or written to it, slow training down."""
HELD_BACK = 0.05
"""A quota is named as a cause from this share of the time on."""
IDLE_CPUS = 0.5
"""So many that have nothing to do are named: no neighbour keeps training from them."""
WAITING = 0.25
"""The loop waits where its own thread does not run for this share of the time."""
NAMED = 2
"""Processes that are named; the others are summed up."""
PAGE = 4096
UNKNOWN = (
    "the loop may do more than a step (data, evaluation), or this machine or its software has changed;"
    " autotune check PROFILE TARGET measures again"
)


@dataclass(frozen=True)
class Look:
    """Counters of the machine at one time: seconds, pages swapped, seconds held back by a quota, seconds in which this
    process's CPUs had nothing to do, seconds in which this thread ran, CPUs that its number of threads leaves free,
    other processes."""

    seconds: float
    swapped: int = 0
    held_back: float = 0.0
    idle: float = 0.0
    ran: float = 0.0
    spare: int = 0
    others: tuple[Process, ...] = ()


class Slowness:
    """Looks when training begins to be slow. Before that, only its CPUs are counted.

    Args:
        look: reads the counters.
        cpus: how many CPUs training may run on.
    """

    def __init__(self, look: Callable[[], Look] | None = None, cpus: Callable[[], int] | None = None) -> None:
        self._look, self._cpus = look or _look, cpus or _cpus
        self._cpus_before = self._cpus()
        self._before: Look | None = None

    def begin(self) -> None:
        """Training is slow from now on."""
        self._before = _tried(self._look)

    def words(self, rate: float, expected: float) -> str:
        """The warning, of optimizer steps a second."""
        return f"a step takes {1e3 / rate:.3g} ms, the profile measured {1e3 / expected:.3g} ms: {self.causes()}"

    def causes(self) -> str:
        """What happened since `begin`, in words."""
        after = _tried(self._look)
        found = list(causes(self._before, after)) if self._before and after else []
        if (cpus := self._cpus()) < self._cpus_before:
            found.insert(0, f"it may run on {cpus} of the {self._cpus_before} CPUs that it started on")
        return "; ".join(found) or UNKNOWN


def causes(before: Look, after: Look) -> Iterator[str]:
    """What can have slowed training down between two looks."""
    seconds = max(after.seconds - before.seconds, 1e-9)
    held_back = (after.held_back - before.held_back) / seconds
    if held_back < HELD_BACK:
        yield from _idleness((after.idle - before.idle) / seconds, 1 - (after.ran - before.ran) / seconds, after.spare)
    neighbours = _neighbours(before.others, after.others, seconds)
    for each in neighbours[:NAMED]:
        name = each.name or "another user's process"
        yield f"{name} (pid {each.pid}) takes {each.cpus:.1f} CPUs"
    if rest := sum(each.cpus for each in neighbours[NAMED:]):
        yield f"other processes take {rest:.1f} CPUs"
    if (swapped := (after.swapped - before.swapped) * PAGE / seconds) >= SWAPPED_BYTES:
        yield f"memory is short: {swapped / 2**20:.0f} MiB/s are swapped"
    if held_back >= HELD_BACK:
        yield f"the CPU quota holds its threads back ({held_back:.1f} s of each second)"


def _idleness(idle: float, waiting: float, spare: int) -> Iterator[str]:
    """What CPUs without work say of the loop. Those that ``spare`` counts are idle in a healthy run too."""
    if idle >= IDLE_CPUS and waiting >= WAITING:
        yield f"{idle:.1f} CPUs are idle, so the loop itself waits (for data, evaluation, a pause)"
    elif idle - spare >= IDLE_CPUS:
        yield f"{idle - spare:.1f} CPUs are idle while the loop works on fewer threads (for data, small operators)"


def _neighbours(before: Sequence[Process], after: Sequence[Process], seconds: float) -> list[Neighbour]:
    """Processes that were there at both looks and took a part of a CPU that is worth a word, the busiest first."""
    known = {(each.pid, each.created): each.seconds for each in before}
    found = (
        Neighbour(each.pid, each.name, each.niceness, (each.seconds - known[each.pid, each.created]) / seconds)
        for each in after
        if (each.pid, each.created) in known
    )
    return sorted((each for each in found if each.cpus >= MENTIONED), key=lambda each: -each.cpus)


def _look() -> Look:
    system = System()
    swapped, idle = _swapped(system.read("/proc/vmstat") or ""), _idle(system.read("/proc/stat") or "")
    others = _others(processes())
    return Look(time.monotonic(), swapped, _held_back(system), idle, time.thread_time(), _spare(), others)


def _cpus() -> int:
    """As the affinity mask of this thread has them, which cpusets and CPUs that are offline narrow; else all."""
    known = getattr(os, "sched_getaffinity", None)
    return len(known(0)) if known else os.cpu_count() or 1


def _spare() -> int:
    """CPUs that the threads of this training's processes on this machine leave free."""
    together = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
    return max(0, _cpus() - together * torch.get_num_threads())


def _others(seen: Sequence[Process]) -> tuple[Process, ...]:
    """All processes but those of this training: this one, its fellows of the same launcher, and what they started."""
    root = os.getppid() if int(os.environ.get("WORLD_SIZE") or 1) > 1 else os.getpid()
    ours = below(seen, root)
    return tuple(each for each in seen if each.pid not in ours)


def _swapped(vmstat: str) -> int:
    """Pages read from and written to swap since the machine started."""
    rows = dict(line.split() for line in vmstat.splitlines() if line.startswith(("pswpin ", "pswpout ")))
    return sum(map(int, rows.values()))


def _idle(stat: str) -> float:
    """Seconds without work of the CPUs of this thread's mask since the machine started; 0 where a GPU trains: its CPUs
    wait for it."""
    gpu = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    if gpu or not hasattr(os, "sched_getaffinity"):
        return 0.0
    rows = (line.split() for line in stat.splitlines())
    own = {f"cpu{cpu}" for cpu in os.sched_getaffinity(0)}
    return sum(int(row[4]) + int(row[5]) for row in rows if row and row[0] in own) / os.sysconf("SC_CLK_TCK")


def _held_back(system: System) -> float:
    """Seconds that quotas of this process's control groups have held threads back."""
    stats = (group.read(system, "cpu.stat") or "" for group in cgroup.ancestors(system, "cpu"))
    return max(map(_throttled, stats), default=0.0)


def _throttled(stat: str) -> float:
    rows = dict(line.split() for line in stat.splitlines() if line.startswith("throttled_"))
    if "throttled_usec" in rows:  # version 2
        return int(rows["throttled_usec"]) / 1e6
    return int(rows.get("throttled_time", 0)) / 1e9


def _tried(look: Callable[[], Look]) -> Look | None:
    """None where the machine does not let itself be looked at: training goes on."""
    try:
        return look()
    except Exception:
        return None
