"""Open files and processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from machines import MACHINES, host

from autotune.probes import limits


@pytest.mark.parametrize(
    ("machine", "processes", "source"),
    [("laptop", None, "unlimited"), ("pod_v2", 1024, "cgroup pids.max"), ("pod_v1", 512, "cgroup pids.max")],
)
def test_recorded_machines(tmp_path: Path, machine: str, processes: int | None, source: str) -> None:
    found = limits.probe(MACHINES[machine]().at(tmp_path))
    assert (found.processes, found.processes_source) == (processes, source)
    assert (found.open_files_soft, found.open_files_hard) == (1024, 1048576)


@pytest.mark.parametrize(("uid", "processes"), [(1000, 100), (0, None)])
def test_rlimit_nproc_does_not_bind_root(tmp_path: Path, uid: int, processes: int | None) -> None:
    machine = host([(0,)], cpuinfo="", uid=uid, rlimits={"RLIMIT_NPROC": (100, 200)})
    assert limits.probe(machine.at(tmp_path)).processes == processes


def test_the_tighter_of_both_wins(tmp_path: Path) -> None:
    machine = host([(0,)], cpuinfo="", rlimits={"RLIMIT_NPROC": (100, 200)}).having({"/sys/fs/cgroup/pids.max": "24"})
    found = limits.probe(machine.at(tmp_path))
    assert (found.processes, found.processes_source) == (24, "cgroup pids.max")
