"""Real process trees. Nothing sleeps here: pipes and waits say when a process is there or gone."""

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.trial import process_tree

pytestmark = pytest.mark.skipif(not process_tree.LINUX, reason="process trees are found through /proc")

PATIENCE = 10.0
"""Seconds after which a wait has failed; none of them is waited for where all is well."""
FORKS = """
import os, signal
from autotune.trial import process_tree
if os.fork() == 0:
    process_tree.die_with_parent()
    process_tree.prefer_as_oom_victim()
    print(os.getpid(), flush=True)
while True:
    signal.pause()
"""
Family = tuple["subprocess.Popen[str]", int]


@pytest.fixture
def family() -> Iterator[Family]:
    """A process, and the pid of its child."""
    with subprocess.Popen([sys.executable, "-c", FORKS], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        yield parent, int(parent.stdout.readline())
        parent.kill()


@pytest.mark.parametrize("lists", [True, False], ids=["the kernel lists children", "it does not"])
def test_descendants_of_all_generations(family: Family, lists: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_tree, "LISTS_CHILDREN", lists and process_tree.LISTS_CHILDREN)
    parent, child = family
    assert process_tree.descendants(parent.pid) == {child}
    assert {parent.pid, child} <= process_tree.descendants(os.getpid())


def test_zombies_are_none() -> None:
    with subprocess.Popen(["true"]) as dead:
        os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
        assert dead.pid not in process_tree.descendants(os.getpid())
        assert not process_tree.alive(dead.pid)


def test_a_child_dies_with_its_parent(family: Family) -> None:
    parent, child = family
    descriptor = os.pidfd_open(child)
    parent.kill()
    ready, _, _ = select.select([descriptor], [], [], PATIENCE)
    os.close(descriptor)
    assert ready, f"process {child} lives on"


def test_a_trial_goes_first_when_memory_runs_out(family: Family) -> None:
    scores = [Path(f"/proc/{pid}/oom_score_adj").read_text().strip() for pid in (family[1], family[0].pid)]
    assert scores[0] == str(process_tree.TRIAL_OOM_SCORE) != scores[1]


def test_alive_and_threads_of_this_process() -> None:
    assert process_tree.alive(os.getpid())
    assert not process_tree.alive(2**22 + 1)
    assert process_tree.own_threads() == len(os.listdir("/proc/self/task")) >= 1


def test_the_working_folder_of_a_child_shadows_no_module(tmp_path: Path) -> None:
    for name in ("autotune", "json", "signal"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')")
    command = process_tree.child_command("not a number")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "the wrong module" not in done.stderr
    assert "autotune/trial/child/fork_server.py" in done.stderr, "it came as far as its arguments"
