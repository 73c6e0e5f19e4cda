"""Faults of the machine while a run measures: memory and SIGKILL. 0 lost, 0 left behind."""

from pathlib import Path

import pytest

from autotune.trial.process_tree import kill_tree
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
