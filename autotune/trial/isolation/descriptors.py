"""Files that the script opened before the fork."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

from autotune.trial.isolation.mounts import KEPT, SERVICES, below

FIRST = 3
"""Standard input, output and error stay what they are."""
MADE_ANEW = os.O_CREAT | os.O_EXCL | os.O_TRUNC


def reopen(where: Callable[[str], str | None]) -> None:
    """Open regular files again, by their names and at their positions.

    Descriptors that a fork copies share one position, so that the first trial would move it for the next; and writes
    through them land where the zygote had the file.

    Args:
        where: the name that a file has now, from the name that it had; None leaves it alone.
    """
    for fd in _open_now():
        with contextlib.suppress(OSError):
            path = os.readlink(f"/proc/self/fd/{fd}")
            if fd < FIRST or not stat.S_ISREG(os.fstat(fd).st_mode) or below(path, (*KEPT, *SERVICES)):
                continue
            if (now := where(path)) is not None:
                _reopen(fd, now)


def _open_now() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        return []  # no Linux


def _reopen(fd: int, path: str) -> None:
    flags = _flags(fd) & ~MADE_ANEW
    position, inheritable = os.lseek(fd, 0, os.SEEK_CUR), os.get_inheritable(fd)
    again = os.open(path, flags)
    os.lseek(again, position, os.SEEK_SET)
    os.dup2(again, fd, inheritable=inheritable)
    os.close(again)


def _flags(fd: int) -> int:
    found = re.search(r"(?m)^flags:\s*([0-7]+)", Path(f"/proc/self/fdinfo/{fd}").read_text())
    return int(found[1], 8) if found else os.O_RDONLY
