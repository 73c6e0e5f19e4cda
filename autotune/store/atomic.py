"""Files that are replaced in one step: readers see the old one or the new one, never a part."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

LOCK_SECONDS = 10.0
"""No writer holds a lock for long: one that is still held then was left behind, as on a network file system."""


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
        with os.fdopen(handle, "w", encoding="utf-8") as file:
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
def locked(path: Path) -> Iterator[None]:
    """Keep other writers of ``path`` away. Goes on without where the file system has no locks, or a stale one."""
    lock = FileLock(path.with_name(f".{path.name}.lock"), timeout=LOCK_SECONDS)
    try:
        lock.acquire()
    except (Timeout, OSError, NotImplementedError):
        yield
        return
    try:
        yield
    finally:
        lock.release()
