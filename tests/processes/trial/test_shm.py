"""Leftovers in shared memory: what is proven to be a trial's goes, all else stays."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.trial import process_tree
from autotune.trial.child import shm

ROOT = Path(__file__).resolve().parents[3]
TRIAL = Path("/tmp/autotune-x_1y/t1")
MARK = "autotune-x_1y-t1."


def python(*arguments: str, cwd: Path = ROOT, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """A Python process that has said its first line."""
    process = subprocess.Popen(
        [*before, sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout.readline() == "ready\n"
    return process


def test_what_has_the_trials_mark_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shm, "FOLDER", tmp_path)
    others = [
        "psm_1a2b3c4d",
        "sem.mp-k3x",
        "psm_autotune-x_1y-t10.1a2b",
        "psm_autotune-other-t1.1a2b",
        MARK,
        "torch_1_2",
    ]
    for name in (f"psm_{MARK}1a2b3c4d", f"sem.mp-{MARK}-k3_x", *others):
        (tmp_path / name).touch()
    shm.remove(TRIAL)
    assert {path.name for path in tmp_path.iterdir()} == set(others)


TRACKED = """
import os, sys
from multiprocessing import resource_tracker, shared_memory
from autotune.trial.child import shm
block = shared_memory.SharedMemory(create=True, size=16, name=sys.argv[1])
pid = resource_tracker._resource_tracker._pid
for _ in range(100_000):
    if shm.is_tracker(pid):
        break  # until then it is a fork of this process
    os.sched_yield()
print("ready", flush=True)
print(pid, flush=True)
sys.stdin.read()
"""


def test_pythons_resource_tracker_outlives_the_trial_and_removes_the_rest() -> None:
    name = f"psm_test_{os.getpid()}"
    process = python("-c", TRACKED, name)
    tracker = int(process.stdout.readline())
    assert shm.is_tracker(tracker)
    assert (shm.FOLDER / name).exists()
    assert shm.end({process.pid, tracker}) == {process.pid}
    process.communicate()
    assert not process_tree.alive(tracker)
    assert not (shm.FOLDER / name).exists()


def test_pytorchs_manager_outlives_the_trial_too() -> None:
    sleeper = "import sys; print('ready', flush=True); sys.stdin.read()"
    manager = python("-c", sleeper, before=("bash", "-c", 'exec -a torch_shm_manager "$@"', "bash"))
    other = python("-c", sleeper, "torch_shm_manager", "multiprocessing.resource_tracker")
    assert [shm.is_manager(process.pid) for process in (manager, other)] == [True, False]
    assert not shm.is_tracker(other.pid)
    assert shm.end({manager.pid, other.pid}) == {other.pid}
    assert process_tree.alive(manager.pid)
    for process in (manager, other):
        process.communicate()
    assert not shm.is_manager(manager.pid)
