"""Whose CPU time it was, read from recorded trees of ``/proc``."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.probes import cpu_time
from autotune.probes.cpu_time import Load, Neighbour, Neighbours, Process, processes
from autotune.tuning.notes import BUSY, load_note
from tests.doubles.proc import TUNER, ProcTree, Row

IDLE = (0.0, 0, 0, 0)
TICK = 0.001
"""Processors that one process of our own may have used more in 10 s than is counted."""
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


def load(
    tree: ProcTree,
    then: dict[int, tuple[float, ...]],
    *rows: Row,
    threads: int = 2,
    before: tuple[Row, ...] = (),
    **later: dict[str, str],
) -> Load:
    """Return what others took from an idle beginning to ``then``, when ``files`` have changed."""
    tree.at(dict.fromkeys(tree.cpus, IDLE), *before)
    neighbours = Neighbours(system=tree.system)
    tree.at(then, *rows, **later)
    return neighbours.load(threads)


def used(seconds: float) -> dict[int, tuple[float, ...]]:
    """Ten seconds of two processors, of which ``seconds`` were used in all."""
    return dict.fromkeys((0, 1), (seconds / 2, 0, 0, 10 - seconds / 2))


@pytest.mark.parametrize(
    ("then", "rows", "taken", "steal"),
    [
        ({0: (6, 0, 4, 0), 1: (0, 0, 0, 10)}, (Row(TUNER, seconds=10),), 0.0, 0.0),
        ({0: (5, 1, 4, 0), 1: (9, 0, 0, 1)}, (Row(TUNER, seconds=1),), 1.8 - TICK, 0.0),
        ({0: (10, 0, 0, 0), 1: (0, 0, 0, 10)}, (Row(TUNER, seconds=1, ended=9),), 0.0, 0.0),
        (
            {0: (10, 0, 0, 0), 1: (5, 0, 0, 5)},
            (Row(TUNER), Row(11, TUNER, 2, 3), Row(12, 11, 5), Row(20, 1, 5)),
            0.5 - 3 * TICK,
            0.0,
        ),
        ({0: (1, 0, 0, 5, 0, 1, 3), 1: (0, 0, 0, 10)}, (Row(TUNER, seconds=1),), 0.4 - TICK, 0.0),
        ({0: (4, 0, 0, 3, 0, 0, 0, 3), 1: (0, 0, 0, 10)}, (Row(TUNER, seconds=4),), 0.0, 0.3),
        ({0: (4, 0, 0, 1, 5), 1: (0, 0, 0, 10)}, (Row(TUNER, seconds=4),), 0.0, 0.0),
        ({0: (2, 0, 0, 8), 1: (0, 0, 0, 10)}, (Row(TUNER, seconds=3),), 0.0, 0.0),
    ],
    ids=["own", "ended unseen", "own that ended", "tree", "interrupts", "steal", "waiting for disks", "rounding"],
)
def test_all_cpu_time_but_ones_own(tmp_path: Path, then, rows, taken, steal) -> None:
    found = load(ProcTree(tmp_path), then, *rows)
    assert (found.taken, found.steal) == pytest.approx((taken, steal))


def test_other_processors_do_not_count(tmp_path: Path) -> None:
    then = {0: (2.0, 0, 0, 8), 1: (10.0, 0, 0, 0)}
    found = load(ProcTree(tmp_path, (0,)), then, Row(TUNER, seconds=1), threads=1)
    assert found.taken == pytest.approx(0.1 - TICK)


@pytest.mark.parametrize(
    ("files", "counter", "unit"),
    [
        (V2, "/sys/fs/cgroup/box/cpu.stat", "usage_usec {}000000"),
        (V1, "/sys/fs/cgroup/cpuacct/box/cpuacct.usage", "{}000000000"),
    ],
    ids=["version 2", "version 1"],
)
@pytest.mark.parametrize(
    ("busy", "group", "expected"), [(10.0, 12, 0.0), (10.0, 18, 0.6), (30.0, 12, 0.4), (30.0, 18, 0.6)]
)
def test_beside_a_quota_others_take_what_it_leaves_nobody(
    tmp_path: Path, files: dict[str, str], counter: str, unit: str, busy: float, group: int, expected: float
) -> None:
    """Four CPUs and a quota of two: processes outside may use two CPUs and take nothing, those inside share the quota.

    ``busy`` seconds of 40 are used in all, ``group`` by the group, and 12 by the tree itself.
    """
    tree = ProcTree(tmp_path, (0, 1, 2, 3), {**files, counter: unit.format(0)})
    then = dict.fromkeys(tree.cpus, ((busy + 6) / 4, 0, 0, 10 - (busy + 6) / 4))
    found = load(tree, then, Row(TUNER, seconds=12), files={counter: unit.format(group)})
    assert found.taken == pytest.approx(max(0.0, expected - TICK))


@pytest.mark.parametrize("stat", ["", "cpu 1 2 3 4", "cpu0 0 0 0 0\ncpu1 0 0 0 0", "cpu0 a b c", "cpu0"])
def test_where_the_kernel_does_not_count_those_seen_alive_do(tmp_path, stat, monkeypatch) -> None:
    clock = iter((5.0, 15.0))
    monkeypatch.setattr(cpu_time, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    tree, files = ProcTree(tmp_path), {"/proc/stat": stat}
    tree.at({}, Row(20, seconds=1.0), files=files)
    neighbours = Neighbours(system=tree.system)
    tree.at({}, Row(20, seconds=6.0), files=files)
    assert neighbours.load(2).taken == pytest.approx(0.5)


def test_processes_are_read(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path)
    tree.at(
        dict.fromkeys(tree.cpus, IDLE),
        Row(20, 10, 1.5, 2.5, name="a) S (b", niceness=19),
        Row(30, owner=1000),
        files={"/proc/40/stat": ""},
    )
    assert {each.pid: each for each in processes(tree.system)} == {
        10: Process(10, 1, "autotune", 0, 0.0),
        20: Process(20, 10, "a) S (b", 19, 1.5, 2.5),
        30: Process(30, 1, "", 0, 0.0),
    }


class TestNames:
    def test_count_from_the_start(self, tmp_path: Path) -> None:
        then = Row(20, seconds=109.0), Row(30, seconds=4.0, niceness=19)
        found = load(ProcTree(tmp_path), used(14.0), *then, before=(Row(20, seconds=100.0),))
        assert found.neighbours == (
            Neighbour(20, "python", 0, pytest.approx(0.9)),
            Neighbour(30, "python", 19, pytest.approx(0.4)),
        )

    def test_processes_that_were_never_seen_alive_count(self, tmp_path: Path) -> None:
        """A loop of short commands: 19 s of 20 were used, one by whom we know."""
        found = load(ProcTree(tmp_path), used(19.0), Row(20, seconds=2.0), before=(Row(20, seconds=1.0),))
        words = f"{BUSY}: python (pid 20) took 0.1, other processes took 1.8 of 2 CPUs"
        assert load_note(found, names=True).startswith(words)

    def test_who_started_them_is_named(self, tmp_path: Path) -> None:
        before = Row(20, ended=50.0, name="make"), Row(21, 20, 40.0, name="cc1")
        found = load(ProcTree(tmp_path), used(18.0), Row(20, ended=108.0, name="make"), before=before)
        words = f"{BUSY}: make (pid 20) took 1.8 of 2 CPUs"
        assert load_note(found, names=True).startswith(words), "cc1's 40 s were before the run"

    def test_ones_own_processes_have_none(self, tmp_path: Path) -> None:
        found = load(ProcTree(tmp_path), used(20.0), Row(TUNER, ended=5.0), Row(12, TUNER, 15.0))
        assert found == Load(0.0, 0.0, (), 2)

    def test_nor_have_little_ones_and_those_bound_elsewhere(self, tmp_path: Path) -> None:
        then = Row(20, seconds=0.9), Row(30, seconds=10.0, cpus="2-3"), Row(40, seconds=3.0, cpus="1-3")
        found = load(ProcTree(tmp_path), used(3.9), *then)
        assert found.neighbours == (Neighbour(40, "python", 0, pytest.approx(0.3)),)


class Trial:
    """A processor; process 10 leads a trial with worker 11, and looks at these two only."""

    def __init__(self, folder: Path) -> None:
        self.tree, self.worker = ProcTree(folder, (0,)), [11]
        self.at((0, 0, 0), (0, 0))

    def at(self, processor: Any, own: tuple[int, int], waited: int | None = 0, ended: int = 0) -> None:
        """Ticks: used, idle and steal; of leader and worker; what the worker waited, None if the kernel does not know;
        of the leader's children that have ended."""
        busy, idle, steal = (ticks / 100 for ticks in processor)
        waits = {} if waited is None else {10: 0, 11: waited * 10_000_000}
        files = {f"/proc/{pid}/task/{pid}/schedstat": f"123 {wait} 4" for pid, wait in waits.items()}
        rows = Row(10, seconds=own[0] / 100, ended=ended / 100), Row(11, 10, own[1] / 100, name="a (b) c")
        self.tree.at({0: (busy, 0, 0, idle, 0, 0, 0, steal), 1: (99 * busy, 0, 0, 0)}, *rows, Row(20), files=files)

    def neighbours(self) -> Neighbours:
        return Neighbours(10, lambda root: [root, *self.worker], self.tree.system)


@pytest.mark.parametrize(
    ("processor", "own", "waited", "lost", "taken"),
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
def test_what_others_used_is_missed_as_far_as_threads_waited(tmp_path, processor, own, waited, lost, taken) -> None:
    trial = Trial(tmp_path)
    neighbours = trial.neighbours()
    trial.at(processor, own, waited)
    found = neighbours.load()
    assert (found.wait_share, found.cpus, found.neighbours) == (pytest.approx(lost), pytest.approx(taken), ())


def test_a_worker_that_has_ended_stays_our_own(tmp_path: Path) -> None:
    trial = Trial(tmp_path)
    trial.at((50, 0, 0), (10, 40))
    neighbours = trial.neighbours()
    trial.worker = []
    trial.at((100, 0, 0), (20, 40), ended=80)
    assert (found := neighbours.load()).wait_share == found.cpus == 0.0
