"""Whose CPU time it was: read from a recorded /proc, and from the real one beside a busy process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autotune.probes.system import System
from autotune.trial import process_tree
from autotune.trial.child.measured_loop import CpuContention

SPIN = "while True: pass"
LINUX = pytest.mark.skipif(not process_tree.LISTS_CHILDREN, reason="the kernel does not list a process's children")


class Recorded(System):
    """A machine of two processors, of which this process may use the first; process 10 leads a trial with worker 11."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.prefix, self.proc = str(folder), folder / "proc"
        for pid, children in ((10, "11"), (11, "")):
            (self.proc / str(pid) / "task" / str(pid)).mkdir(parents=True)
            (self.proc / str(pid) / "task" / str(pid) / "children").write_text(children)
        self.record((0, 0, 0), (0, 0))

    def affinity(self) -> frozenset[int]:
        return frozenset({0})

    def record(self, processors: tuple[int, int, int], own: tuple[int, int], waited: int | None = 0) -> None:
        """Ticks used, idle and steal of processor 0; those of the launcher and its worker; what the worker waited,
        None if the kernel does not know."""
        used, idle, steal = processors
        (self.proc / "stat").write_text(f"cpu0 {used} 0 0 {1000 + idle} 0 0 0 {steal} 0 0\ncpu1 {99 * used} 0 0 0\n")
        for pid, ticks in zip((10, 11), own, strict=True):
            self.stat_of(pid, ticks)
            schedstat = self.proc / str(pid) / "task" / str(pid) / "schedstat"
            schedstat.write_text(f"123 {(waited or 0) * 10_000_000 if pid == 11 else 0} 4\n")
            if waited is None:
                schedstat.unlink()

    def stat_of(self, pid: int, kernel: int, *ended: int) -> None:
        """Ticks of one process in the kernel, and of its children that have ended."""
        user, system = ended or (0, 0)
        line = f"{pid} (a (b) c) S {pid - 1} 10 10 0 0 0 0 0 0 0 {kernel} 0 {user} {system} 20 0 1 0 5"
        (self.proc / str(pid) / "stat").write_text(line)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    monkeypatch.setattr(process_tree, "PROCESSES", tmp_path / "proc")
    monkeypatch.setattr(process_tree, "LISTS_CHILDREN", True)
    return Recorded(tmp_path)


@pytest.mark.parametrize(
    ("processors", "own", "waited", "lost", "neighbours"),
    [
        ((100, 0, 0), (60, 40), 0, 0.0, 0.0),
        ((100, 0, 0), (60, 0), 50, 0.38, 0.38),
        ((100, 0, 0), (60, 0), 20, 0.2, 0.38),
        ((50, 50, 0), (1, 0), 0, 0.0, 0.47),
        ((60, 10, 30), (60, 0), 0, 0.3, 0.3),
        ((60, 0, 30), (0, 0), 30, 60 / 90, 88 / 90),
        ((100, 0, 0), (99, 0), 50, 0.0, 0.0),
        ((100, 0, 0), (60, 0), None, 0.38, 0.38),
        ((0, 0, 0), (0, 0), 0, 0.0, 0.0),
    ],
    ids=["own", "waits", "yields in part", "beside", "steal", "both", "own threads", "waits unknown", "no time"],
)
def test_what_others_used_is_missed_as_far_as_threads_waited(
    machine: Recorded, processors: Any, own: tuple[int, int], waited: int | None, lost: float, neighbours: float
) -> None:
    others = CpuContention(10, machine)
    machine.record(processors, own, waited)
    assert others.taken() == pytest.approx((lost, neighbours))


def test_a_worker_that_has_ended_stays_our_own(machine: Recorded) -> None:
    machine.record((50, 0, 0), (10, 40))
    others = CpuContention(10, machine)
    (machine.proc / "10" / "task" / "10" / "children").write_text("")
    machine.record((100, 0, 0), (10, 40))
    machine.stat_of(10, 20, 60, 20)
    assert others.taken() == (0.0, 0.0)


MEASURE = """
import os, time
from autotune.trial.child.measured_loop import CpuContention
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
others, end = CpuContention(root=os.getpid()), time.process_time() + 0.3
while time.process_time() < end:
    pass
print(others.taken()[0])
"""


@LINUX
def test_a_busy_process_on_the_same_processor_is_seen() -> None:
    cpu = min(os.sched_getaffinity(0))
    other = subprocess.Popen([sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{cpu}}})\n{SPIN}"])
    try:
        taken = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True)
    finally:
        other.kill()
        other.wait()
    assert float(taken.stdout) > 0.2
