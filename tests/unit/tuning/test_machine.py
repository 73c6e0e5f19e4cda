"""The machine during a run: its CPUs, and who else uses them, from recorded trees of ``/proc``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from autotune.errors import MachineChanged, NothingUsable
from autotune.probes.system import System
from autotune.stats.load import Load, Neighbour
from autotune.tuning import machine as tuning
from autotune.tuning.machine import Neighbours, same_cpus, wait_until_quiet
from autotune.tuning.notes import BUSY, load_note
from tests.doubles.proc import TUNER, ProcTree, Row
from tests.doubles.simulation.simulator import inventory


class Machine:
    """Two processors and a clock, both moved by hand. ``used`` is all CPU time so far, of which a half on each."""

    now = 0.0

    def __init__(self, folder: Path, *rows: Row) -> None:
        self.tree = ProcTree(folder)
        self.at(0.0, 0.0, *rows)

    def at(self, now: float, used: float, *rows: Row) -> None:
        Machine.now = now
        self.tree.at(dict.fromkeys((0, 1), (used / 2, 0, 0, now - used / 2)), *rows)

    def neighbours(self) -> Neighbours:
        return Neighbours(self.tree.system)


@pytest.fixture(autouse=True)
def moved_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "time", SimpleNamespace(monotonic=lambda: Machine.now))


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
    assert load_note(load, names=True).startswith(
        f"{BUSY}: python (pid 20) took 0.1, other processes took 1.8 of 2 CPUs"
    )


def test_who_started_them_is_named(tmp_path: Path) -> None:
    machine = Machine(tmp_path, Row(20, ended=50.0, name="make"), Row(21, 20, 40.0, name="cc1"))
    found = machine.neighbours()
    machine.at(10.0, 18.0, Row(20, ended=108.0, name="make"))
    assert load_note(found.load(2), names=True).startswith(f"{BUSY}: make (pid 20) took 1.8 of 2 CPUs"), (
        "cc1's 40 s were before the run"
    )


def test_the_runs_own_processes_are_no_neighbours_even_if_they_ended(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    found = machine.neighbours()
    machine.at(10.0, 20.0, Row(TUNER, ended=5.0), Row(12, TUNER, 15.0))
    assert found.load(2) == Load(0.0, 0.0, (), 2)


def test_where_the_kernel_does_not_count_those_seen_alive_do(tmp_path: Path) -> None:
    machine = Machine(tmp_path, Row(20, seconds=1.0))
    machine.tree.files["/proc/stat"] = "cpu  0 0 0 0"
    machine.at(0.0, 0.0, Row(20, seconds=1.0))
    found = machine.neighbours()
    machine.at(10.0, 19.0, Row(20, seconds=6.0))
    assert found.load(2).taken == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("busy_until", "most", "waited"), [(0.0, 600.0, 5.0), (12.0, 600.0, 20.0), (900.0, 18.0, 18.0)]
)
def test_waits_until_others_are_quiet(
    busy_until: float, most: float, waited: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path)

    def sleep(seconds: float) -> None:
        machine.at(machine.now + seconds, 2 * min(machine.now + seconds, busy_until))

    monkeypatch.setattr(tuning, "Neighbours", machine.neighbours)
    monkeypatch.setattr(tuning.time, "sleep", sleep, raising=False)
    wait_until_quiet(most, 2)
    assert machine.now == waited


INVENTORY = inventory(4, 4)


class Now(System):
    """A machine with four CPUs, of which some are ``online`` and in the ``mask``, and a ``quota``."""

    def __init__(self, mask: Iterable[int], online: str = "0-3", quota: str = "max 100000") -> None:
        super().__init__()
        self._mask = frozenset(mask)
        self._files = {
            "/sys/devices/system/cpu/online": online,
            "/proc/self/cgroup": "0::/",
            "/proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
            "/sys/fs/cgroup/cpu.max": quota,
        }

    def read(self, path: str) -> str | None:
        return self._files.get(path)

    def affinity(self) -> frozenset[int]:
        return self._mask


def test_the_same_cpus_are_no_matter() -> None:
    with same_cpus(INVENTORY, Now(range(4))):
        pass


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (Now(range(1)), "affinity mask (1 of 4 CPUs)"),
        (Now(range(1), online="0"), "1 online CPU"),  # the kernel also takes it out of what the mask reads as
        (Now(range(4), quota="50000 100000"), "cgroup CPU quota 0.5"),
    ],
)
def test_other_cpus_or_another_quota_end_the_run_with_what_was_and_what_is(now: System, words: str) -> None:
    before = re.escape(INVENTORY.budget.limit)
    with pytest.raises(MachineChanged, match=f"{before} before, {re.escape(words)} now"), same_cpus(INVENTORY, now):
        raise NothingUsable("an error that came of it")


def test_the_kernel_is_asked() -> None:
    with pytest.raises(MachineChanged), same_cpus(replace(INVENTORY, budget=replace(INVENTORY.budget, cpus=(123456,)))):
        pass
