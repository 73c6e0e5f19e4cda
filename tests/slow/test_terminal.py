"""Started from a terminal: Ctrl-C reaches the tuner alone, and user code that opens the terminal finds none."""

import fcntl
import os
import pty
import select
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.slow.harness import MLP, command, environment, left

pytestmark = pytest.mark.torch

TASK = (
    """
import os, signal
from pathlib import Path
FOLDER = Path(__file__).parent


def look_around():
    if os.environ.get("AUTOTUNE_TRIAL") and not (FOLDER / "terminal").exists():
        signal.signal(signal.SIGINT, lambda *_: (FOLDER / "interrupted").touch())
        try:
            os.open("/dev/tty", os.O_RDWR)
            found = "opened"
        except OSError as error:
            found = error.strerror
        (FOLDER / "part").write_text(found)
        (FOLDER / "part").rename(FOLDER / "terminal")
"""
    + MLP
).replace("    inputs, targets = batch", "    look_around()\n    inputs, targets = batch")


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    yield ours, theirs
    for end in (ours, theirs):
        os.close(end)


def read_while(terminal: int, going: Callable[[], bool], seconds: float = 60.0) -> str:
    """What is written to the terminal; nobody else reads it, and a full one stops the writer."""
    seen, give_up = b"", time.monotonic() + seconds
    while going() and time.monotonic() < give_up:
        if select.select([terminal], [], [], 0.05)[0]:
            seen += os.read(terminal, 65536)
    return seen.decode(errors="replace")


def test_ctrl_c_reaches_the_tuner_alone_and_trials_have_no_terminal(tmp_path: Path, terminal: tuple[int, int]) -> None:
    (tmp_path / "model.py").write_text(TASK)
    ours, theirs = terminal
    tuner = subprocess.Popen(
        command("tune", "model.py", "--budget", "120s"),
        cwd=tmp_path,
        env=environment(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    seen = read_while(ours, lambda: tuner.poll() is None and not (tmp_path / "terminal").exists())
    assert (tmp_path / "terminal").exists(), seen
    os.write(ours, b"\x03")
    seen += read_while(ours, lambda: tuner.poll() is None)
    assert tuner.wait() == 130, seen
    assert left() == set()
    assert (tmp_path / "terminal").read_text() == "No such device or address"
    assert not (tmp_path / "interrupted").exists()
