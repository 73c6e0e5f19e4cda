"""Sequential write and read rate of the file system under a folder, in MB/s.

python -m autotune.probes.bench.disk [folder]
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time

SIZE = 64 << 20
CHUNK = 1 << 20


def main() -> None:
    """Print ``{"write", "read"}``; reads come from the disk where the kernel lets us drop the file from its cache."""
    folder = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryFile(dir=folder) as file:
        print(json.dumps({"write": write(file.fileno()), "read": read(file.fileno())}))


def write(descriptor: int) -> float:
    """MB/s to write and flush to the device."""
    data = os.urandom(CHUNK)  # some disks compress: zeros would flatter them
    start = time.perf_counter()
    for _ in range(SIZE // CHUNK):
        os.write(descriptor, data)
    os.fsync(descriptor)
    return _rate(start)


def read(descriptor: int) -> float:
    """MB/s to read the file back."""
    with contextlib.suppress(AttributeError, OSError):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.lseek(descriptor, 0, os.SEEK_SET)
    start = time.perf_counter()
    while os.read(descriptor, CHUNK):
        pass
    return _rate(start)


def _rate(start: float) -> float:
    return round(SIZE / (time.perf_counter() - start) / 1e6, 1)


if __name__ == "__main__":
    main()
