"""Whose CPU time it was, read from recorded trees of ``/proc``."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.probes.cpu_time import Process, cpu_time, may_use, processes, taken
from tests.doubles.proc import TUNER, ProcTree, Row

IDLE = (0.0, 0, 0, 0)
V2 = {
    "/proc/self/cgroup": "0::/box",
    "/proc/self/mountinfo": "24 30 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
    "/sys/fs/cgroup/box/cpu.max": "200000 100000",
}
V1 = {
    "/proc/self/cgroup": "3:cpuacct:/box\n2:cpu:/box",
    "/proc/self/mountinfo": "\n".join(
        f"{number} 32 0:{number} / /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{name}"
        for number, name in ((33, "cpu"), (34, "cpuacct"))
    ),
    "/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "200000",
    "/sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "100000",
}


def others(
    tree: ProcTree, then: dict[int, tuple[float, ...]], *rows: Row, threads: int = 2, **later: dict[str, str]
) -> tuple[float, float]:
    """Return what others took from an idle beginning to ``then``, when ``files`` have changed."""
    tree.at(dict.fromkeys(tree.cpus, IDLE))
    before = cpu_time(tree.system, processes(tree.system), TUNER)
    tree.at(then, *rows, **later)
    now = cpu_time(tree.system, processes(tree.system), TUNER)
    return taken(before, now, threads)


@pytest.mark.parametrize(
    ("then", "rows", "expected"),
    [
        ({0: (6, 0, 4, 0), 1: (0, 0, 0, 10)}, (Row(TUNER, seconds=10),), (0.0, 0.0)),
        ({0: (5, 1, 4, 0), 1: (9, 0, 0, 1)}, (Row(TUNER, seconds=1),), (1.8, 0.0)),
        ({0: (10, 0, 0, 0), 1: (0, 0, 0, 10)}, (Row(TUNER, seconds=1, ended=9),), (0.0, 0.0)),
        (
            {0: (10, 0, 0, 0), 1: (5, 0, 0, 5)},
            (Row(TUNER), Row(11, TUNER, 2, 3), Row(12, 11, 5), Row(20, 1, 5)),
            (0.5, 0.0),
        ),
        ({0: (1, 0, 0, 5, 0, 1, 3), 1: (0, 0, 0, 10)}, (Row(TUNER, seconds=1),), (0.4, 0.0)),
        ({0: (4, 0, 0, 3, 0, 0, 0, 3), 1: (0, 0, 0, 10)}, (Row(TUNER, seconds=4),), (0.0, 0.3)),
        ({0: (4, 0, 0, 1, 5), 1: (0, 0, 0, 10)}, (Row(TUNER, seconds=4),), (0.0, 0.0)),
        ({0: (2, 0, 0, 8), 1: (0, 0, 0, 10)}, (Row(TUNER, seconds=3),), (0.0, 0.0)),
    ],
    ids=["own", "ended unseen", "own that ended", "tree", "interrupts", "steal", "waiting for disks", "rounding"],
)
def test_all_cpu_time_but_ones_own(
    tmp_path: Path, then: dict[int, tuple[float, ...]], rows: tuple[Row, ...], expected: tuple[float, float]
) -> None:
    assert others(ProcTree(tmp_path), then, *rows) == pytest.approx(expected)


def test_other_processors_do_not_count(tmp_path: Path) -> None:
    then = {0: (2.0, 0, 0, 8), 1: (10.0, 0, 0, 0)}
    assert others(ProcTree(tmp_path, (0,)), then, Row(TUNER, seconds=1), threads=1) == pytest.approx((0.1, 0.0))


@pytest.mark.parametrize(
    ("files", "counter", "unit"),
    [
        (V2, "/sys/fs/cgroup/box/cpu.stat", "usage_usec {}000000"),
        (V1, "/sys/fs/cgroup/cpuacct/box/cpuacct.usage", "{}000000000"),
    ],
    ids=["version 2", "version 1"],
)
@pytest.mark.parametrize(
    ("busy", "used", "expected"), [(10.0, 12, 0.0), (10.0, 18, 0.6), (30.0, 12, 0.4), (30.0, 18, 0.6)]
)
def test_beside_a_quota_others_take_what_it_leaves_nobody(
    tmp_path: Path, files: dict[str, str], counter: str, unit: str, busy: float, used: int, expected: float
) -> None:
    """Four CPUs and a quota of two: processes outside may use two CPUs and take nothing, those inside share the quota.

    ``busy`` seconds of 40 are used in all, ``used`` by the group, and 12 by the tree itself.
    """
    tree = ProcTree(tmp_path, (0, 1, 2, 3), {**files, counter: unit.format(0)})
    then = dict.fromkeys(tree.cpus, ((busy + 6) / 4, 0, 0, 10 - (busy + 6) / 4))
    taken_by_others, _ = others(tree, then, Row(TUNER, seconds=12), files={counter: unit.format(used)})
    assert taken_by_others == pytest.approx(expected)


@pytest.mark.parametrize("stat", ["", "cpu 1 2 3 4", "cpu0 0 0 0 0\ncpu1 0 0 0 0", "cpu0 a b c", "cpu0"])
def test_a_kernel_that_does_not_count(tmp_path: Path, stat: str) -> None:
    tree = ProcTree(tmp_path)
    tree.at(dict.fromkeys(tree.cpus, IDLE), files={"/proc/stat": stat})
    assert cpu_time(tree.system, processes(tree.system), TUNER) is None


def test_processes_are_read(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path)
    tree.at(
        dict.fromkeys(tree.cpus, IDLE),
        Row(20, 10, 1.5, 2.5, name="a) S (b", niceness=19),
        Row(30, owner=1000),
        files={"/proc/40/stat": ""},
    )
    assert {each.pid: each for each in processes(tree.system)} == {
        10: Process(10, 1, pytest.approx(0.1), "autotune", 0, 0.0),
        20: Process(20, 10, pytest.approx(0.2), "a) S (b", 19, 1.5, 2.5),
        30: Process(30, 1, pytest.approx(0.3), "", 0, 0.0),
    }


@pytest.mark.parametrize(("bound", "expected"), [("0-1", True), ("1", True), ("2-5", False)])
def test_who_is_bound_elsewhere_is_no_neighbour(tmp_path: Path, bound: str, expected: bool) -> None:
    tree = ProcTree(tmp_path)
    tree.at(dict.fromkeys(tree.cpus, IDLE), Row(20, cpus=bound))
    assert may_use(tree.system, 20, frozenset({0, 1})) is expected
    assert may_use(tree.system, 99, frozenset({0, 1})), "it has ended"
