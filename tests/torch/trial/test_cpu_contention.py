"""Whose CPU time it was: read from a recorded /proc, and from the real one beside a busy process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotune.trial import process_tree
from autotune.trial.child.measured_loop import CpuContention
from tests.doubles.proc import ProcTree, Row


def record(
    tree: ProcTree, processors: tuple[int, int, int], own: tuple[int, int], waited: int | None = 0, ended: int = 0
) -> None:
    """Ticks used, idle and steal of processor 0; those of the launcher and its worker; what the worker waited, None if
    the kernel does not know; those of the launcher's children that have ended."""
    used, idle, steal = (ticks / 100 for ticks in processors)
    waits = {} if waited is None else {10: 0, 11: waited * 10_000_000}
    files = {f"/proc/{pid}/task/{pid}/schedstat": f"123 {wait} 4" for pid, wait in waits.items()}
    rows = Row(10, seconds=own[0] / 100, ended=ended / 100), Row(11, 10, own[1] / 100, name="a (b) c")
    tree.at({0: (used, 0, 0, idle, 0, 0, 0, steal), 1: (99 * used, 0, 0, 0)}, *rows, files=files)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProcTree:
    """Two processors, of which this process may use the first; process 10 leads a trial with worker 11."""
    monkeypatch.setattr(process_tree, "PROCESSES", tmp_path / "proc")
    monkeypatch.setattr(process_tree, "LISTS_CHILDREN", True)
    tree = ProcTree(tmp_path, (0,), {"/proc/10/task/10/children": "11", "/proc/11/task/11/children": ""})
    record(tree, (0, 0, 0), (0, 0))
    return tree


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
    machine: ProcTree, processors: Any, own: tuple[int, int], waited: int | None, lost: float, neighbours: float
) -> None:
    others = CpuContention(10, machine.system)
    record(machine, processors, own, waited)
    assert others.taken() == pytest.approx((lost, neighbours))


def test_a_worker_that_has_ended_stays_our_own(machine: ProcTree) -> None:
    record(machine, (50, 0, 0), (10, 40))
    others = CpuContention(10, machine.system)
    machine.files["/proc/10/task/10/children"] = ""
    record(machine, (100, 0, 0), (20, 40), ended=80)
    assert others.taken() == (0.0, 0.0)
