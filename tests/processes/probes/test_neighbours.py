"""The CPU time of real processes beside our own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from autotune.probes.cpu_time import Neighbours
from autotune.probes.system import System

SHORT = "while :; do sh -c 'i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done'; done"
"""Each command takes some ten milliseconds, and its loop next to nothing."""


@pytest.fixture
def asleep() -> Iterator[int]:
    """A process that stands in for the tuner, so that what the test starts is not its own."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    process.communicate(b"\n")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts all CPU time")
def test_many_short_real_processes_are_counted(asleep: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two loops keep every CPU of two busy, and hardly one of their commands is alive at both looks."""
    loops = [subprocess.Popen(["sh", "-c", SHORT], start_new_session=True) for _ in range(2)]
    try:
        monkeypatch.setattr(System, "pid", lambda _: asleep)
        found = Neighbours()
        time.sleep(1.0)
        load = found.load(len(os.sched_getaffinity(0)))
    finally:
        for loop in loops:
            os.killpg(loop.pid, signal.SIGKILL)
            loop.wait()
    least = 0.6 * min(2, load.threads)
    assert load.taken > least
    assert {loop.pid for loop in loops} <= {each.pid for each in load.neighbours}
