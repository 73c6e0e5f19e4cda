"""What stands before a program to bind it, and that the printed form does what ours does."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from autotune.launch.binding import starter, system_tools

from autotune.knobs.affinity import Affinity, AffinityPlan
from autotune.knobs.settings import Settings
from autotune.launch.command import command, starter, system_tools

ALONE = AffinityPlan((0, 1, 2, 3), (Affinity((0, 1), (2, 3)),))
LOCAL = AffinityPlan((0, 1, 2, 3), (Affinity((0, 1), (0, 1), (0,)), Affinity((2, 3), (2, 3), (1,))))


def test_nothing_is_put_before_what_is_not_bound() -> None:
    assert starter(AffinityPlan(), "py") == system_tools(AffinityPlan()) == []
    assert command(Settings(), "train.py", ["x"], "py", binder=[]) == ["py", "train.py", "x"]


def test_one_process() -> None:
    assert command(Settings(), "train.py", ["x"], "py", binder=starter(ALONE, "py")) == (
        ["py", "-m", "autotune.knobs.cpu_binding", "py", "train.py", "x"]
    )
    assert system_tools(ALONE) == ["taskset", "-c", "0-1"]
    assert system_tools(AffinityPlan((0, 1), LOCAL.affinities[1:])) == ["numactl", "--physcpubind=2-3", "--membind=1"]


def test_several_processes() -> None:
    found = command(Settings(processes=2), "train.py", ["x"], "py", binder=starter(LOCAL, "py"))
    torchrun = [
        "py",
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--local-addr=127.0.0.1",
        "--nproc-per-node=2",
        "--no-python",
    ]
    assert found == [*torchrun, "py", "-m", "autotune.knobs.cpu_binding", "py", "-u", "train.py", "x"]
    printed = command(Settings(processes=2), "train.py", ["x"], "py", binder=system_tools(LOCAL))
    assert printed[:7] == torchrun
    assert printed[7:9] == ["sh", "-c"]
    assert printed[-4:] == ["py", "-u", "train.py", "x"]


@pytest.mark.skipif(shutil.which("taskset") is None, reason="needs taskset (util-linux)")
@pytest.mark.skipif(len(getattr(os, "sched_getaffinity", lambda _: ())(0)) < 2, reason="needs two CPUs")
@pytest.mark.parametrize("rank", [0, 1])
def test_the_printed_form_binds_by_local_rank(rank: int) -> None:
    cpus = sorted(os.sched_getaffinity(0))[:2]
    plan = AffinityPlan(tuple(cpus), tuple(Affinity((cpu,), (cpu,)) for cpu in cpus))
    line = [*system_tools(plan), "grep", "Cpus_allowed_list", "/proc/self/status"]
    done = subprocess.run(line, env={**os.environ, "LOCAL_RANK": str(rank)}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Cpus_allowed_list:", str(cpus[rank])]
