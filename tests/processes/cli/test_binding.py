"""The printed form of a binding does what ours does."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from autotune.knobs.affinity import AffinityPlan
from autotune.knobs.knob import Affinity
from autotune.launch.command import system_tools


@pytest.mark.skipif(shutil.which("taskset") is None, reason="needs taskset (util-linux)")
@pytest.mark.skipif(len(getattr(os, "sched_getaffinity", lambda _: ())(0)) < 2, reason="needs two CPUs")
@pytest.mark.parametrize("rank", [0, 1])
def test_the_printed_form_binds_by_local_rank(rank: int) -> None:
    cpus = sorted(os.sched_getaffinity(0))[:2]
    plan = AffinityPlan(tuple(cpus), tuple(Affinity((cpu,), (cpu,)) for cpu in cpus))
    line = [*system_tools(plan), "grep", "Cpus_allowed_list", "/proc/self/status"]
    done = subprocess.run(line, env={**os.environ, "LOCAL_RANK": str(rank)}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Cpus_allowed_list:", str(cpus[rank])]
