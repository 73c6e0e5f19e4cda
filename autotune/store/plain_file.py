"""Files that may be anything: never more than is wanted of them, and no waiting for what is no file."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read(path: Path, most: int) -> bytes:
    """At most ``most`` + 1 bytes of ``path``. Opening a named pipe does not block.

    Raises:
        OSError: it cannot be read, or is no plain file.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "is not a plain file")
        return file.read(most + 1)
