"""Whose CPU time it was: read from a recorded /proc, and from the real one beside a busy process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.trial import process_tree
from autotune.trial.child import measured_loop as cpu_contention
from autotune.trial.child.measured_loop import CpuContention, Taken

SPIN = "while True: pass"
LINUX = pytest.mark.skipif(not process_tree.LISTS_CHILDREN, reason="the kernel does not list a process's children")


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A /proc of two processors, of which this process may use the first; process 10 leads a trial with worker 11."""
    monkeypatch.setattr(cpu_contention, "STAT", tmp_path / "stat")
    monkeypatch.setattr(process_tree, "PROCESSES", tmp_path)
    monkeypatch.setattr(process_tree, "LISTS_CHILDREN", True)
    monkeypatch.setattr(cpu_contention, "KNOWS_DELAYS", True)
    monkeypatch.setattr(cpu_contention, "TICKS_PER_SECOND", 100)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    for pid, children in ((10, "11"), (11, "")):
        (tmp_path / str(pid) / "task" / str(pid)).mkdir(parents=True)
        (tmp_path / str(pid) / "task" / str(pid) / "children").write_text(children)
    record(tmp_path, processors=(0, 0, 0), own=(0, 0))
    return tmp_path


def record(proc: Path, processors: tuple[int, int, int], own: tuple[int, int], waited: int = 0) -> None:
    """Ticks used, idle and stolen of processor 0; those of the launcher and its worker, and what the worker waited."""
    used, idle, stolen = processors
    (proc / "stat").write_text(
        f"cpu 9 9 9 9 9 9 9 9\ncpu0 {used} 0 0 {idle} 0 0 0 {stolen} 0 0\ncpu1 {99 * used} 0 0 0\n"
    )
    for pid, ticks in zip((10, 11), own, strict=True):
        (proc / str(pid) / "stat").write_text(f"{pid} (a (b) c) S 1 10 10 0 0 0 0 0 0 0 {ticks} 0 0 0")
        delay = waited * 10_000_000 if pid == 11 else 0
        (proc / str(pid) / "task" / str(pid) / "schedstat").write_text(f"123 {delay} 4\n")


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
        ((0, 0, 0), (0, 0), 0, 0.0, 0.0),
    ],
    ids=["own", "waits", "yields in part", "beside", "stolen", "both", "own threads", "no time"],
)
def test_what_others_used_is_missed_as_far_as_threads_waited(
    proc: Path, processors: tuple[int, int, int], own: tuple[int, int], waited: int, lost: float, neighbours: float
) -> None:
    others = CpuContention(root=10)
    record(proc, processors, own, waited)
    assert others.taken() == Taken(pytest.approx(lost), pytest.approx(neighbours))


def test_a_worker_that_has_ended_stays_our_own(proc: Path) -> None:
    record(proc, (50, 0, 0), (10, 40))
    others = CpuContention(root=10)
    (proc / "10" / "task" / "10" / "children").write_text("")
    record(proc, (100, 0, 0), (10, 40))
    (proc / "10" / "stat").write_text("10 (a) S 1 10 10 0 0 0 0 0 0 0 20 0 60 20")
    assert others.taken() == Taken()


def test_without_the_times_of_waiting_all_that_others_used_is_missed(
    proc: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_contention, "KNOWS_DELAYS", False)
    others = CpuContention(root=10)
    record(proc, (100, 0, 0), (60, 0))
    assert others.taken() == Taken(pytest.approx(0.38), pytest.approx(0.38))


MEASURE = """
import os, time
from autotune.trial.child.measured_loop import CpuContention
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
others, end = CpuContention(root=os.getpid()), time.process_time() + 0.3
while time.process_time() < end:
    pass
print(others.taken().lost)
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
