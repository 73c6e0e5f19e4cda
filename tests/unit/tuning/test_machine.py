"""The machine during a run: its CPUs, and who else uses them, from recorded trees of ``/proc``."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.errors import MachineChanged
from autotune.probes.facts import CpuBudget
from autotune.probes.system import System
from autotune.report.notes import BUSY, load_named
from autotune.stats.load import Load, Neighbour
from autotune.tuning.events import Event, StageStarted, ignore
from autotune.tuning.machine import SAMPLE_SECONDS, Neighbours, budget_now, on_the_same_cpus, wait_until_quiet
from benchmarks.simulation.simulator import inventory
from tests.doubles.proc import TUNER, ProcTree, Row


class Machine:
    """Two processors and a clock, both moved by hand. ``used`` is all CPU time so far, of which a half on each."""

    def __init__(self, folder: Path, *rows: Row) -> None:
        self.tree, self.now, self.looks = ProcTree(folder), 0.0, 0
        self.at(0.0, 0.0, *rows)

    def at(self, now: float, used: float, *rows: Row) -> None:
        self.now = now
        self.tree.at(dict.fromkeys((0, 1), (used / 2, 0, 0, now - used / 2)), *rows)

    def neighbours(self) -> Neighbours:
        return Neighbours(self.tree.system, lambda: self.now)


def test_counts_from_the_start_of_the_run(tmp_path: Path) -> None:
    machine = Machine(tmp_path, Row(20, seconds=100.0))
    found = machine.neighbours()
    machine.at(10.0, 14.0, Row(20, seconds=109.0), Row(30, seconds=4.0, niceness=19))
    neighbours = (Neighbour(20, "python", 0, pytest.approx(0.9)), Neighbour(30, "python", 19, pytest.approx(0.4)))
    assert found.load(2) == Load(pytest.approx(1.4), 0.0, neighbours, 2)


def test_processes_that_were_never_seen_alive_count(tmp_path: Path) -> None:
    """A loop of short commands: 19 s of 20 were used, one by whom we know."""
    machine = Machine(tmp_path, Row(20, seconds=1.0))
    found = machine.neighbours()
    machine.at(10.0, 19.0, Row(20, seconds=2.0))
    load = found.load(2)
    assert load.taken == pytest.approx(1.9)
    assert load_named(load).startswith(f"{BUSY}: python (pid 20) took 0.1, other processes took 1.8 of 2 CPUs")


def test_who_started_them_is_named(tmp_path: Path) -> None:
    machine = Machine(tmp_path, Row(20, ended=50.0, name="make"), Row(21, 20, 40.0, name="cc1"))
    found = machine.neighbours()
    machine.at(10.0, 18.0, Row(20, ended=108.0, name="make"))
    assert load_named(found.load(2)).startswith(f"{BUSY}: make (pid 20) took 1.8 of 2 CPUs"), (
        "cc1's 40 s were before the run"
    )


def test_the_runs_own_processes_are_no_neighbours_even_if_they_ended(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    found = machine.neighbours()
    machine.at(5.0, 10.0, Row(TUNER), Row(11, TUNER, 5.0), Row(12, 11, 5.0))
    found.observing(ignore)(StageStarted("search"))
    machine.at(10.0, 20.0, Row(TUNER, ended=5.0), Row(12, TUNER, 15.0))
    assert found.load(2) == Load(0.0, 0.0, (), 2)


def test_one_that_has_ended_is_named_as_far_as_it_was_seen(tmp_path: Path) -> None:
    machine = Machine(tmp_path, Row(20), Row(5, name="sh"))
    found = machine.neighbours()
    machine.at(SAMPLE_SECONDS, 4.0, Row(20, 5, seconds=4.0), Row(5, name="sh"))
    found.observing(ignore)(StageStarted("search"))
    machine.at(2 * SAMPLE_SECONDS, 4.0, Row(5, ended=4.0, name="sh"))
    assert found.load(2).neighbours == (Neighbour(20, "python", 0, pytest.approx(0.4)),)


def test_where_the_kernel_does_not_count_those_seen_alive_do(tmp_path: Path) -> None:
    machine = Machine(tmp_path, Row(20, seconds=1.0))
    machine.tree.files["/proc/stat"] = "cpu  0 0 0 0"
    machine.at(0.0, 0.0, Row(20, seconds=1.0))
    found = machine.neighbours()
    machine.at(10.0, 19.0, Row(20, seconds=6.0))
    assert found.load(2).taken == pytest.approx(0.5)


def test_if_a_look_takes_long_there_are_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path)

    def slow(_: object) -> list[object]:
        machine.now, machine.looks = machine.now + 0.5, machine.looks + 1
        return []

    monkeypatch.setattr("autotune.tuning.machine.processes", slow)
    observe = machine.neighbours().observing(ignore)
    for _ in range(10):
        machine.now += SAMPLE_SECONDS
        observe(StageStarted("search"))
    assert machine.looks == 2


def test_little_and_elsewhere_are_not_named(tmp_path: Path) -> None:
    machine = Machine(tmp_path, Row(20), Row(30, cpus="2-3"))
    found = machine.neighbours()
    machine.at(10.0, 0.9, Row(20, seconds=0.9), Row(30, seconds=10.0, cpus="2-3"))
    assert found.load(2) == Load(pytest.approx(0.09), 0.0, (), 2)


@pytest.mark.parametrize(
    ("busy_until", "most", "waited"), [(0.0, 600.0, 5.0), (12.0, 600.0, 20.0), (900.0, 18.0, 18.0)]
)
def test_waits_until_others_are_quiet(busy_until: float, most: float, waited: float, tmp_path: Path) -> None:
    machine = Machine(tmp_path)

    def sleep(seconds: float) -> None:
        machine.at(machine.now + seconds, 2 * min(machine.now + seconds, busy_until))

    wait_until_quiet(most, 2, machine.neighbours, lambda: machine.now, sleep)
    assert machine.now == waited


INVENTORY = inventory(4, 4)
BEFORE = INVENTORY.budget
EVENT = StageStarted("baseline")


@pytest.mark.parametrize(
    "now",
    [
        replace(BEFORE, limit="the same by another name"),
        replace(BEFORE, cpus=BEFORE.cpus[:1], limit="affinity mask (1 of 4 CPUs)"),
        replace(BEFORE, cpus=(*BEFORE.cpus, 99), limit="5 online CPUs"),
        replace(BEFORE, quota=0.5, limit="cgroup CPU quota 0.5"),
    ],
    ids=lambda now: now.limit,
)
def test_other_cpus_or_another_quota_end_the_run_with_what_was_and_what_is(now: CpuBudget) -> None:
    events: list[Event] = []
    observe = on_the_same_cpus(INVENTORY, events.append, lambda: now)
    if (now.cpus, now.quota) == (BEFORE.cpus, BEFORE.quota):
        observe(EVENT)
        assert events == [EVENT]
    else:
        with pytest.raises(MachineChanged, match=f"{re.escape(BEFORE.limit)} before, {re.escape(now.limit)} now"):
            observe(EVENT)


def test_a_cpu_that_is_offline_is_no_matter_of_the_mask() -> None:
    """The kernel also takes it out of what the mask reads as."""

    class Here(System):
        def read(self, path: str) -> str | None:
            return "0" if path.endswith("cpu/online") else None

        def affinity(self) -> frozenset[int]:
            return frozenset({0})

    assert budget_now(Here({}), INVENTORY.cpu).limit == "1 online CPU"


def test_the_kernel_is_asked() -> None:
    with pytest.raises(MachineChanged):
        on_the_same_cpus(replace(INVENTORY, budget=replace(BEFORE, cpus=(123456,))), lambda _: None)(EVENT)
