"""Who tunes, where several processes or machines that share a folder of profiles miss the same one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from autotune.store import layout
from autotune.store.places import named_places

WAIT_SECONDS = 1800.0
"""For another process that tunes the same target on the same type of machine."""


@contextlib.contextmanager
def lease(machine_key: str, target: str, on_wait: Callable[[str], None]) -> Iterator[None]:
    """Held while this process tunes. It lies in the first folder of ``AUTOTUNE_PROFILES``, else the project's.

    Args:
        machine_key: the type of machine.
        target: what is tuned.
        on_wait: called with ``target`` where another process holds it.

    Raises:
        OSError: there is no such folder, or another process holds the lease for too long.
    """
    folders = (place for place in named_places(os.environ) if isinstance(place, Path))
    path = layout.default_path(machine_key, target, next(folders, None)).with_suffix(".tuning")
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        on_wait(target)
        _wait(lock)
    try:
        yield
    finally:
        _tidy(path)
        lock.release()


def _tidy(path: Path) -> None:
    """Leave nothing behind. Who waits holds the removed file; a third that comes now tunes again at worst."""
    with contextlib.suppress(OSError):
        path.unlink()
        for folder in (path.parent, path.parent.parent):
            folder.rmdir()


def _wait(lock: FileLock) -> None:
    try:
        lock.acquire(timeout=WAIT_SECONDS)
    except Timeout:
        raise OSError(f"another process has tuned for {WAIT_SECONDS / 60:.0f} minutes") from None
