"""One tuning run at a time on one machine."""

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
sys.path.insert(0, sys.argv[1])
from autotune.tuning import runner as lock
with lock.acquire(0, print):
    print("held", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def other_process() -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until it gets a line."""
    arguments = [sys.executable, "-c", HOLDER, str(Path(lock.__file__).parents[2])]
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


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lock file, in a temporary folder of the test's own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / lock.LOCK_NAME


def test_a_second_run_waits_and_gives_up() -> None:
    seen: list[bool] = []
    with other_process():
        words = "another autotune process measures on this machine, still after 0 s"
        with pytest.raises(NothingUsable, match=words), lock.acquire(0, lambda: seen.append(True)):
            pytest.fail("two at once")
    assert seen == [True]


def test_a_second_run_goes_on_when_the_first_ends() -> None:
    with other_process() as first:

        def end() -> None:
            first.stdin.write("\n")
            first.stdin.flush()

        with lock.acquire(20, end):
            first.wait(20)


def test_a_killed_holder_holds_nothing() -> None:
    with other_process() as first:
        first.kill()
        first.wait()
        with lock.acquire(5, lambda: pytest.fail("waited")):
            pass


def test_all_users_may_lock(file: Path) -> None:
    with lock.acquire(0, lambda: None):
        assert stat.S_IMODE(file.stat().st_mode) == 0o666


def test_a_lock_file_that_cannot_be_opened(file: Path) -> None:
    file.mkdir()
    with pytest.raises(LaunchError, match="cannot be opened"), lock.acquire(0, lambda: None):
        pytest.fail("locked a folder")
