"""One lock for all timed trials on this machine: two at once would measure each other.

It is a file lock: the kernel releases it when its process ends, also after a crash. A second file contains the holder's
process id, for messages. Both are in the temporary folder and writable by all users, who share the processors.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from autotune.errors import LaunchError, NothingUsable

POLL_SECONDS = 0.2


def default_file() -> Path:
    """Return the machine-wide lock file."""
    return Path(tempfile.gettempdir()) / "torch-autotune-trials.lock"


def holder(file: Path | None = None) -> int | None:
    """Return the process id of the live holder; None if nobody holds the lock or the holder is unknown."""
    try:
        with open(_pid_file(file or default_file()), "rb", opener=_open_planted) as opened:
            pid = int(opened.read(20))
    except (OSError, ValueError):
        return None
    return pid if pid > 0 and _alive(pid) else None


@contextlib.contextmanager
def acquire(timeout: float, on_wait: Callable[[int | None], None], file: Path | None = None) -> Iterator[None]:
    """Hold the lock for the ``with`` block.

    Args:
        timeout: seconds to wait at most; 0 does not wait.
        on_wait: called once, with the holder's process id, if the lock is taken.
        file: another lock file than the machine's.

    Raises:
        NothingUsable: still taken after ``timeout``.
        LaunchError: the lock file cannot be opened.
    """
    file = file or default_file()
    lock = FileLock(file, mode=0o666)
    _take(lock, timeout, on_wait, file)
    try:
        _write_pid(_pid_file(file), str(os.getpid()))
        yield
    finally:
        _write_pid(_pid_file(file), "")
        lock.release()


def _take(lock: FileLock, timeout: float, on_wait: Callable[[int | None], None], file: Path) -> None:
    try:
        try:
            lock.acquire(timeout=0)
        except Timeout:
            on_wait(holder(file))
            lock.acquire(timeout=timeout, poll_interval=POLL_SECONDS)
    except Timeout:
        by = holder(file)
        raise NothingUsable(
            f"Another tuning run{f' (process {by})' if by else ''} has held this machine for {timeout:g} s."
            " Timed trials must not overlap: wait for it, end it, or give a longer --budget."
        ) from None
    except OSError as error:
        raise LaunchError(
            f"{file}: the lock for timed trials cannot be opened ({error.strerror}). Remove it, or set TMPDIR."
        ) from error


def _pid_file(file: Path) -> Path:
    return file.with_suffix(".pid")


def _write_pid(file: Path, text: str) -> None:
    """Write the holder's process id, if that can be done."""
    with contextlib.suppress(OSError):
        flags = os.O_WRONLY | os.O_TRUNC
        try:
            handle = _open_planted(file, flags)
        except FileNotFoundError:
            handle = _open_planted(file, flags | os.O_CREAT | os.O_EXCL)
            os.fchmod(handle, 0o666)
        with os.fdopen(handle, "w") as opened:
            opened.write(text)


def _open_planted(file: str | Path, flags: int) -> int:
    """Open a file that another user may have planted: follows no symbolic link, waits for no reader of a pipe."""
    return os.open(file, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o666)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True
