"""One tuning run at a time on one machine."""

from __future__ import annotations

import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autotune.errors import LaunchError, NothingUsable
from autotune.tuning import runner as lock

HOLDER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from autotune.tuning import runner as lock
with lock.acquire(0, print, Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def other_process(file: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until it gets a line."""
    root = str(Path(lock.__file__).parents[2])
    arguments = [sys.executable, "-c", HOLDER, str(file), root]
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    guard = threading.Timer(60.0, process.kill)
    guard.start()
    assert process.stdout.readline() == "held\n"
    guard.cancel()
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A lock file of the test's own."""
    return tmp_path / "trials.lock"


def test_a_second_run_waits_and_gives_up(file: Path) -> None:
    seen: list[bool] = []
    with other_process(file):
        words = "another tuning run has held this machine for 0 s.*--budget"
        with pytest.raises(NothingUsable, match=words), lock.acquire(0, lambda: seen.append(True), file):
            pytest.fail("two at once")
    assert seen == [True]


def test_a_second_run_goes_on_when_the_first_ends(file: Path) -> None:
    with other_process(file) as first:

        def end() -> None:
            first.stdin.write("\n")
            first.stdin.flush()

        with lock.acquire(20, end, file):
            first.wait(20)


def test_a_killed_holder_holds_nothing(file: Path) -> None:
    with other_process(file) as first:
        first.kill()
        first.wait()
        with lock.acquire(5, lambda: pytest.fail("waited"), file):
            pass


def test_all_users_may_lock(file: Path) -> None:
    with lock.acquire(0, lambda: None, file):
        assert stat.S_IMODE(file.stat().st_mode) == 0o666


def test_a_lock_file_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="cannot be opened"), lock.acquire(0, lambda: None, tmp_path):
        pytest.fail("locked a folder")
