"""The CPUs of a run: whether they stay the same while it measures."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from autotune.errors import MachineChanged
from autotune.probes import budget
from autotune.probes.cpu import online_cpus
from autotune.probes.facts import Inventory
from autotune.probes.system import System


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
