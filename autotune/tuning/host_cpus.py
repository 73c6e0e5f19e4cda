"""Whether a run may still use the CPUs that it began with: masks, cpusets and quotas may change meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from autotune.errors import MachineChanged
from autotune.probes import budget
from autotune.probes.cpu import online_cpus
from autotune.probes.facts import Cpu, CpuBudget, Inventory
from autotune.probes.system import System
from autotune.tuning.events import Event, Observer


def on_the_same_cpus(inventory: Inventory, observe: Observer, read: Callable[[], CpuBudget] | None = None) -> Observer:
    """``observe``, and at each event a look at the CPUs: nothing is timed then.

    Args:
        inventory: the machine as the run began.
        observe: called with each event.
        read: gives what this process may use now; the kernel is asked if None.

    Returns:
        An observer that raises `MachineChanged` where CPUs or quota are others than in ``inventory``.
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
    """What this process may use of ``cpu`` now, without what is offline meanwhile."""
    online = set(online_cpus(system))
    return budget.probe(system, replace(cpu, logical=tuple(each for each in cpu.logical if each.id in online)))
