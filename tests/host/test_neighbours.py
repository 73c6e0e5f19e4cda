"""Who else uses the processors: from recorded processes, and from a real one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from autotune.core.events import StageStarted, ignore
from autotune.core.load import Neighbour
from autotune.host.neighbours import SAMPLE_SECONDS, Neighbours
from autotune.probes.processes import Process, processes

TUNER = Process(10, 1, 1.0, "autotune", 0, 5.0, frozenset({0, 1}))


class Machine:
    """Processes and a clock, both moved by hand."""

    def __init__(self, *seen: Process) -> None:
        self.now, self.seen = 0.0, [TUNER, *seen]
        self.cost, self.looks = 0.0, 0

    def read(self) -> Sequence[Process]:
        self.now, self.looks = self.now + self.cost, self.looks + 1
        return self.seen

    def neighbours(self) -> Neighbours:
        return Neighbours(self.read, lambda: self.now, own=10)

    def after(self, seconds: float, *seen: Process) -> None:
        self.now, self.seen = self.now + seconds, [TUNER, *seen]


def other(pid: int, seconds: float, *, parent: int = 1, niceness: int = 0, cpus: Sequence[int] = (0, 1)) -> Process:
    return Process(pid, parent, float(pid), "python", niceness, seconds, frozenset(cpus))


def test_counts_from_the_start_of_the_run() -> None:
    machine = Machine(other(20, 100.0))
    found = machine.neighbours()
    machine.after(10.0, other(20, 109.0), other(30, 4.0, niceness=19))
    assert found.load(2).neighbours == (Neighbour(20, "python", 0, 0.9), Neighbour(30, "python", 19, 0.4))


def test_the_runs_own_processes_are_no_neighbours_even_if_they_ended() -> None:
    machine = Machine()
    found = machine.neighbours()
    observe = found.observing(ignore)
    machine.after(SAMPLE_SECONDS, other(11, 5.0, parent=10), other(12, 5.0, parent=11))
    observe(StageStarted("search"))
    machine.after(SAMPLE_SECONDS, other(12, 10.0, parent=1))
    assert found.load(2).neighbours == ()


def test_one_that_has_ended_counts_as_far_as_it_was_seen() -> None:
    machine = Machine(other(20, 0.0))
    found = machine.neighbours()
    machine.after(SAMPLE_SECONDS, other(20, 4.0))
    found.observing(ignore)(StageStarted("search"))
    machine.after(SAMPLE_SECONDS)
    assert found.load(2).neighbours == (Neighbour(20, "python", 0, 0.4),)


def test_where_a_look_takes_long_there_are_few() -> None:
    machine = Machine()
    machine.cost = 0.5
    observe = machine.neighbours().observing(ignore)
    for _ in range(10):
        machine.after(SAMPLE_SECONDS)
        observe(StageStarted("search"))
    assert machine.looks == 2


def test_little_and_elsewhere_are_not_worth_a_word() -> None:
    machine = Machine(other(20, 0.0), other(30, 0.0, cpus=(2, 3)))
    found = machine.neighbours()
    machine.after(10.0, other(20, 0.9), other(30, 10.0, cpus=(2, 3)))
    assert found.load(2).neighbours == ()


def test_real_processes_are_read() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        seen = {each.pid: each for each in processes()}
    finally:
        child.communicate(b"\n")
    assert seen[child.pid].parent == os.getpid()
    assert seen[child.pid].name.startswith("python")
    assert seen[os.getpid()].seconds > 0
