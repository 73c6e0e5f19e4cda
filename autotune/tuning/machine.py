"""The machine during a run: whether its CPUs stay the same, and whether others leave them to it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace

from autotune.errors import MachineChanged
from autotune.probes import budget
from autotune.probes.cpu import online_cpus
from autotune.probes.cpu_time import Neighbours
from autotune.probes.facts import Inventory
from autotune.probes.system import System
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


def wait_until_quiet(most: float, threads: int) -> None:
    """Return when other processes took little of the CPUs for `QUIET_SECONDS`, or after ``most`` seconds."""
    deadline = time.monotonic() + most
    while (left := deadline - time.monotonic()) > 0:
        neighbours = Neighbours()
        time.sleep(min(QUIET_SECONDS, left))
        if neighbours.load(threads).cpus <= QUIET_CPUS:
            return
