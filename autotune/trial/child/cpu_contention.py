"""CPU time that others take: other processes, and the hypervisor's other guests."""

from __future__ import annotations

import os
from pathlib import Path

STAT = Path("/proc/stat")
PROCESSES = Path("/proc")
KNOWS_CHILDREN = Path("/proc/thread-self/children").exists()
"""Without it a trial cannot tell its own processes from others."""


class CpuContention:
    """Counts from its construction on, over the processors that this process may run on.

    What is below ``root`` (the leader of a trial: all ranks and loader workers) is its own, and so is ``root``.
    """

    def __init__(self, root: int) -> None:
        self.root = root
        self.total, self.used, self.stolen = _processors()
        self.own, _ = _tree(root)

    def share(self) -> float:
        """Share of the processors' time, 0..1, that others took since construction; 0 where it cannot be read."""
        total, used, stolen = _processors()
        own, processes = _tree(self.root)
        if total <= self.total:
            return 0.0
        # The kernel counts whole ticks, so that each process of our own may seem up to one short.
        others = max(0, (used - self.used) - (own - self.own) - processes) if KNOWS_CHILDREN else 0
        return min(1.0, (others + stolen - self.stolen) / (total - self.total))


def _processors() -> tuple[int, int, int]:
    """Ticks of all kinds, of processes, and stolen by the hypervisor; zeros where the kernel does not say."""
    total = used = stolen = 0
    try:
        allowed = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        for line in STAT.read_text("ascii").splitlines():
            name, *fields = line.split()
            if name in allowed:
                ticks = [int(value) for value in fields[:8]]
                total, used = total + sum(ticks), used + sum(ticks[:3])
                stolen += ticks[7] if len(ticks) > 7 else 0
    except (OSError, ValueError, AttributeError):
        return 0, 0, 0
    return total, used, stolen


def _tree(root: int) -> tuple[int, int]:
    """Ticks used so far by ``root`` and the processes below it, and the number of the living.

    Found from ``root`` downwards: looking at all processes of a large machine would take too long.
    """
    ticks, found = 0, [root]
    for pid in found:
        folder = PROCESSES / str(pid)
        try:
            fields = (folder / "stat").read_text("ascii", "replace").rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))  # its own, and those of its children that have ended
            for task in os.listdir(folder / "task"):
                found += map(int, (folder / "task" / task / "children").read_text("ascii").split())
        except OSError:
            continue  # ended meanwhile
    return ticks, len(found)
