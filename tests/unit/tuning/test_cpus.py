"""A run ends where the CPUs that it may use change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.errors import MachineChanged
from autotune.probes.facts import CpuBudget
from autotune.probes.system import System
from autotune.tuning.events import Event, StageStarted
from autotune.tuning.host_cpus import budget_now, on_the_same_cpus
from benchmarks.simulation.simulator import inventory

MACHINE = inventory(4, 4)
BEFORE = MACHINE.budget
EVENT = StageStarted("baseline")


def told(now: CpuBudget) -> list[Event]:
    """What the observer is told after the CPUs became ``now``."""
    events: list[Event] = []
    on_the_same_cpus(MACHINE, events.append, lambda: now)(EVENT)
    return events


def test_events_pass_where_nothing_changed() -> None:
    assert told(replace(BEFORE, hints=("another hint",))) == [EVENT]


@pytest.mark.parametrize(
    "now",
    [
        replace(BEFORE, cpus=BEFORE.cpus[:1], limit="affinity mask (1 of 4 CPUs)"),
        replace(BEFORE, cpus=(*BEFORE.cpus, 99), limit="5 online CPUs"),
        replace(BEFORE, quota=0.5, limit="cgroup CPU quota 0.5"),
    ],
    ids=lambda now: now.limit,
)
def test_a_change_says_what_was_and_what_is(now: CpuBudget) -> None:
    with pytest.raises(MachineChanged) as error:
        told(now)
    assert BEFORE.limit in str(error.value)
    assert now.limit in str(error.value)


def test_a_cpu_that_is_offline_is_no_matter_of_the_mask() -> None:
    """The kernel also takes it out of what the mask reads as."""

    class Here(System):
        def read(self, path: str) -> str | None:
            return "0" if path.endswith("cpu/online") else None

        def affinity(self) -> frozenset[int]:
            return frozenset({0})

    assert budget_now(Here({}), MACHINE.cpu).limit == "1 online CPU"


def test_the_kernel_is_asked() -> None:
    with pytest.raises(MachineChanged):
        on_the_same_cpus(replace(MACHINE, budget=replace(BEFORE, cpus=(123456,))), lambda _: None)(EVENT)
