"""Faults of the machine while a run measures: memory, CPUs, signals, SIGKILL. 0 lost, 0 left behind."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from autotune.knobs.settings import Settings
from autotune.profiles import file as profiles
from autotune.trial.process_tree import descendants, kill_tree
from tests.doubles.proven_profile import profile
from tests.slow.harness import MLP, autotune, begin, cgroup, inside, left, read_until, temporary_folder

pytestmark = pytest.mark.torch

HUNGRY = MLP.replace(
    "    inputs, targets = batch",
    "    inputs, targets = batch\n    if len(inputs) > 64:\n        torch.ones(2**29).sum()  # 2 GiB, touched",
)
LEAST = ("--budget", "60s", "--only", "batch_size")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MLP)
    return tmp_path


def scratch() -> list[Path]:
    """Scratch folders of these tests' runs."""
    return list(temporary_folder().glob("autotune-*"))


def test_what_runs_killed_at_once_leave_is_removed_by_the_next(folder: Path) -> None:
    """Tuner and fork server get SIGKILL together, as in a pod that is removed: nobody is left to clean up."""
    process = begin(folder, "tune", "model.py", "--budget", "55s", "--profile", "out.yaml")
    read_until(process, r"loading the task")
    kill_tree(process.pid)
    process.communicate()
    assert left() == set()
    assert len(scratch()) == 1
    (folder / "model.py").write_text("raise SystemExit('no task')\n" + MLP)
    assert autotune(folder, "tune", "model.py", "--budget", "60s").code == 3
    assert scratch() == []


def leave_one_cpu(process: subprocess.Popen[str]) -> None:
    """To ``process`` and all that it has started."""
    for pid in (*descendants(process.pid), process.pid):
        subprocess.run(["taskset", "-a", "-p", "-c", str(min(os.sched_getaffinity(0))), str(pid)], capture_output=True)


@pytest.mark.parametrize("command", [("diagnose",), ("check", "claimed.yaml")], ids=lambda words: words[0])
def test_cpus_taken_away_end_a_check_and_a_diagnosis_too(command: tuple[str, ...], folder: Path) -> None:
    """A diagnosis blamed the update, and a check denied a claim, both of a machine that was there no more."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU")
    profiles.write(folder / "claimed.yaml", profile(Settings(threads=2, batch_size=64)))
    words = [*command, "model.py", "--budget", "60s", *(["--force"] if len(command) > 1 else [])]
    process = begin(folder, *words)
    read_until(process, r"loading the task|check")
    leave_one_cpu(process)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 4, err
    assert "the CPUs of this run changed" in err
    assert "start it again" in err
    assert out == ""
    assert left() == set()
    assert scratch() == []


@pytest.mark.root
def test_the_kernel_takes_the_trial_and_not_the_tuner(folder: Path) -> None:
    (folder / "model.py").write_text(HUNGRY)
    try:
        group = cgroup("memory", memory__limit_in_bytes=str(1500 * 2**20))
    except OSError as error:
        pytest.skip(f"cannot make a memory cgroup: {error}")
    try:
        done = autotune(folder, "tune", "model.py", *LEAST, "--json", prefix=inside(group))
        kills = (group / "memory.oom_control").read_text()
    finally:
        assert left() == set()
        group.rmdir()
    assert done.code == 0, done.err
    assert "oom_kill 0" not in kills
    assert "out-of-memory" in done.err
    assert all(found["settings"]["batch_size"] <= 64 for found in done.profile["levels"].values())
    assert scratch() == []
