"""CPU time that others take: other processes, and the hypervisor's other guests."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from autotune.trial import process_tree

STAT = Path("/proc/stat")
KNOWS_DELAYS = Path("/proc/thread-self/schedstat").exists()
"""Without it a trial cannot tell what others took from it from what they took beside it."""
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Taken:
    """What others took.

    Attributes:
        lost: share of the processors' time, 0..1, that this training missed: its threads were ready and waited while
            other processes ran, or the hypervisor ran other guests. A neighbour that yields takes nothing from it.
        neighbours: processors that other processes and the hypervisor's other guests kept busy, on average.
    """

    lost: float = 0.0
    neighbours: float = 0.0


@dataclass(frozen=True)
class _Tree:
    """What a trial's processes used: ``ticks`` of CPU time, nanoseconds that each thread waited for a processor."""

    ticks: int
    delays: dict[int, int]
    processes: int


@dataclass(frozen=True)
class _Processors:
    """Ticks of all kinds, of processes, and stolen by the hypervisor; ``count`` processors."""

    total: int = 0
    used: int = 0
    stolen: int = 0
    count: int = 0


class CpuContention:
    """Counts from its construction on, over the processors that this process may run on.

    What is below ``root`` (the leader of a trial: all ranks and loader workers) is its own, and so is ``root``.
    """

    def __init__(self, root: int) -> None:
        self.root = root
        self._before, self._own_before = _processors(), _tree(root)

    def taken(self) -> Taken:
        """Since construction; nothing where it cannot be read."""
        now, own = _processors(), _tree(self.root)
        total = now.total - self._before.total
        if total <= 0:
            return Taken()
        # The kernel counts whole ticks, so that each process of our own may seem up to one short.
        mine = own.ticks - self._own_before.ticks + own.processes
        others = max(0, now.used - self._before.used - mine) if process_tree.LISTS_CHILDREN else 0
        missed = min(others, _waited(self._own_before, own)) if KNOWS_DELAYS else others
        stolen = now.stolen - self._before.stolen
        return Taken(min(1.0, (missed + stolen) / total), (others + stolen) / total * now.count)


def _waited(before: _Tree, now: _Tree) -> float:
    """Ticks that threads were ready to run and did not."""
    delays = (delay - before.delays.get(thread, 0) for thread, delay in now.delays.items())
    return sum(delays) * TICKS_PER_SECOND / 1e9


def _processors() -> _Processors:
    """Those that this process may run on; none where the kernel does not say."""
    total = used = stolen = count = 0
    try:
        allowed = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        for line in STAT.read_text("ascii").splitlines():
            name, *fields = line.split()
            if name in allowed:
                ticks = [int(value) for value in fields[:8]]
                total, used, count = total + sum(ticks), used + sum(ticks[:3]), count + 1
                stolen += ticks[7] if len(ticks) > 7 else 0
    except (OSError, ValueError, AttributeError):
        return _Processors()
    return _Processors(total, used, stolen, count)


def _tree(root: int) -> _Tree:
    """``root`` and the processes below it. Looking at all processes of a large machine would take too long."""
    ticks, delays = 0, dict[int, int]()
    found = process_tree.tree(root) if process_tree.LISTS_CHILDREN else [root]
    for pid in found:
        folder = process_tree.PROCESSES / str(pid)
        try:
            fields = (folder / "stat").read_text("ascii", "replace").rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))  # its own, and those of its children that have ended
            delays |= {int(task.name): _delay(task) for task in (folder / "task").iterdir()}
        except OSError:
            continue  # ended meanwhile
    return _Tree(ticks, delays, len(found))


def _delay(task: Path) -> int:
    """Nanoseconds that a thread has waited for a processor."""
    return int((task / "schedstat").read_text("ascii").split()[1]) if KNOWS_DELAYS else 0
