"""Files that are replaced in one step: readers see the old one or the new one, never a part."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

LOCK_SECONDS = 10.0
"""No writer holds a lock for long: one that is still held then was left behind, as on a network file system."""
POLL_SECONDS = 0.02


def replace(path: Path, text: str, *, private: bool = False) -> None:
    """Write ``text`` to ``path``. Where that fails, the old file stays and nothing is left behind.

    Args:
        path: in a folder that is there.
        text: the new content.
        private: nobody else may read it.

    Raises:
        OSError: it cannot be written.
    """
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o600 if private else 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other writers out of ``folder``; nothing is left in it. Goes on without a lock where the file system has
    none, or where one was left behind."""
    handle = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        _wait_for(handle, time.monotonic() + LOCK_SECONDS)
        yield
    finally:
        os.close(handle)


def _wait_for(handle: int, deadline: float) -> None:
    while time.monotonic() < deadline:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(POLL_SECONDS)
        except OSError:
            return
        else:
            return
