"""Who tunes, where several processes or machines that share a folder of profiles miss the same one."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from autotune.store import layout
from autotune.store.places import location_of, named_places

WAIT_SECONDS = 1800.0
"""For another process that tunes the same target on the same type of machine."""

TRIES = 100
"""So often the folder of the lease may vanish while it is taken."""


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
    folders = (found for place in named_places(os.environ) if isinstance(found := location_of(place), Path))
    path = layout.default_path(machine_key, target, next(folders, None)).with_suffix(".tuning")
    lock = FileLock(path)
    try:
        _acquire(lock, path, 0.0)
    except Timeout:
        on_wait(target)
        _wait(lock, path)
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


def _acquire(lock: FileLock, path: Path, seconds: float) -> None:
    """Who held it before removes its folder, too, at any moment: it is made anew until the lock lies in it."""
    end = time.monotonic() + seconds
    for left in reversed(range(TRIES)):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=max(0.0, end - time.monotonic()))
            return
        except (FileNotFoundError, FileExistsError):
            if not left:
                raise


def _wait(lock: FileLock, path: Path) -> None:
    try:
        _acquire(lock, path, WAIT_SECONDS)
    except Timeout:
        raise OSError(f"another process has tuned for {WAIT_SECONDS / 60:.0f} minutes") from None
