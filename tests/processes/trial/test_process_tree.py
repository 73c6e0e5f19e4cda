"""Real process trees. Nothing sleeps here: pipes and waits say when a process is there or gone."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autotune.trial import process_tree

pytestmark = pytest.mark.skipif(not process_tree.LINUX, reason="process trees are found through /proc")

PATIENCE = 10.0
"""Seconds after which a wait has failed; none of them is waited for where all is well."""


class Family:
    """Starts processes that report their pids through one pipe, and block until they are killed."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        self.pids: list[int] = []

    def fork(self, work: Callable[[], object]) -> int:
        """A child that runs ``work`` and never returns into the test."""
        pid = os.fork()
        if pid == 0:
            try:
                work()
            finally:
                os._exit(0)
        return pid

    def say(self) -> None:
        """Report the calling process."""
        os.write(self.write_end, f"{os.getpid():>10}".encode())

    def block(self) -> None:
        """Report the calling process and stay until a signal ends it."""
        self.say()
        while True:
            signal.pause()

    def hear(self, count: int) -> list[int]:
        """The pids of the next ``count`` reports."""
        for _ in range(count):
            ready, _, _ = select.select([self.read_end], [], [], PATIENCE)
            assert ready, "a process did not report"
            self.pids.append(int(os.read(self.read_end, 10)))
        return self.pids[-count:]

    def end(self) -> None:
        """Kill whatever a failed test left, and take in the dead."""
        for pid in self.pids:
            if process_tree.alive(pid):
                os.kill(pid, signal.SIGKILL)
        for pid in self.pids:
            try:
                os.waitpid(pid, 0)
            except ChildProcessError:
                continue
        os.close(self.read_end)
        os.close(self.write_end)


@pytest.fixture
def family() -> Iterator[Family]:
    found = Family()
    yield found
    found.end()


def gone(pid: int) -> None:
    """Wait for the end of any process, child or not."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ready, _, _ = select.select([descriptor], [], [], PATIENCE)
    os.close(descriptor)
    assert ready, f"process {pid} lives on"


class TestDescendants:
    @pytest.mark.parametrize("lists", [True, False], ids=["the kernel lists children", "it does not"])
    def test_all_generations(self, family: Family, lists: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(process_tree, "LISTS_CHILDREN", lists and process_tree.LISTS_CHILDREN)

        def parent() -> None:
            family.fork(family.block)
            family.block()

        child = family.fork(parent)
        assert set(family.hear(2)) == process_tree.descendants(os.getpid()) & set(family.pids)
        assert process_tree.descendants(child) == set(family.pids) - {child}

    def test_without_zombies(self, family: Family) -> None:
        pid = family.fork(family.say)
        family.hear(1)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert pid not in process_tree.descendants(os.getpid())
        assert not process_tree.alive(pid)


class TestTies:
    def test_a_child_dies_with_its_parent(self, family: Family) -> None:
        def parent() -> None:
            def child() -> None:
                process_tree.die_with_parent()
                family.block()

            family.fork(child)
            family.block()

        top = family.fork(parent)
        below = next(pid for pid in family.hear(2) if pid != top)
        os.kill(top, signal.SIGKILL)
        os.waitpid(top, 0)
        gone(below)

    def test_a_trial_goes_first_when_memory_runs_out(self, family: Family) -> None:
        def victim() -> None:
            process_tree.prefer_as_oom_victim()
            family.block()

        child = family.fork(victim)
        family.hear(1)
        assert Path(f"/proc/{child}/oom_score_adj").read_text().strip() == str(process_tree.TRIAL_OOM_SCORE)
        assert Path("/proc/self/oom_score_adj").read_text().strip() != str(process_tree.TRIAL_OOM_SCORE)


def test_alive_and_threads_of_this_process() -> None:
    assert process_tree.alive(os.getpid())
    assert not process_tree.alive(2**22 + 1)
    assert process_tree.own_threads() == len(os.listdir("/proc/self/task")) >= 1


def test_the_working_folder_of_a_child_shadows_no_module(tmp_path: Path) -> None:
    for name in ("autotune", "json", "signal"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')")
    command = process_tree.child_command("launcher", "not a number", "{}")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "the wrong module" not in done.stderr
    assert "autotune/trial/child/launcher.py" in done.stderr, "it came as far as its arguments"
