"""Lists what is private in a trial, whichever way isolates it.

Real are the study's scratch folder and the kernel's own trees. Whatever else a trial writes is its own, and it reaches
no other machine unless that is permitted.
"""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

KERNEL = ("/dev", "/proc", "/sys")
"""Devices, processes, limits: used as they are."""
SERVICES = ("/run", os.path.realpath(os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps"))
"""Sockets of the machine's services, and pipes of CUDA's: they can be used, but nothing may be written beside them."""
SHARED_MEMORY = "/dev/shm"
NO_FILES = {"proc", "sysfs", "devtmpfs", "devpts", "mqueue", "cgroup", "cgroup2", "securityfs", "debugfs", "tracefs"}
NO_FILES |= {"bpf", "configfs", "pstore", "efivarfs", "hugetlbfs", "binfmt_misc", "autofs", "fusectl", "nsfs"}
"""Kinds of filesystems that hold no user's files."""
FOLDER = "folder"
"""The kind of a `Mount` that is none: a folder that is treated by itself all the same."""
MOST_BYTES, SHARE_OF_MEMORY = 2 * 2**30, 0.25
"""A trial may write so much if that is kept in memory."""


class Treatment(enum.Enum):
    """A trial's rights in a place."""

    REAL = "used as it is"
    READ_ONLY = "read only"
    PRIVATE = "looks like the user's, and what is written is the trial's own"
    SHARED_MEMORY = "the trial may make its own"


@dataclass(frozen=True)
class Mount:
    """A mount: where, which kind of filesystem, and if it may be written to."""

    point: str
    kind: str
    writable: bool

    @property
    def treatment(self) -> Treatment:
        """Return what a trial may do there."""
        found = treatment(self.point)
        if found is Treatment.PRIVATE and self.kind in NO_FILES:
            return Treatment.REAL
        if found is Treatment.PRIVATE and not (self.writable and os.path.isdir(self.point)):
            return Treatment.READ_ONLY
        return found


Nest = Callable[[Path], Callable[[str], str | None]]
"""Called in a forked trial with its folder inside scratch: from then on, its writes are its own. Returns a function:
name of a file before -> its name now; None for a file that is the same one."""
Entered = tuple[Nest, tuple[str, ...]]
"""A way that this process has taken: how a trial nests in it, and what it does not keep inside."""


def treatment(path: str) -> Treatment:
    """Return what a trial may do at the absolute ``path``, which is not in scratch."""
    if below(path, (SHARED_MEMORY,)):
        return Treatment.SHARED_MEMORY
    if below(path, KERNEL):
        return Treatment.REAL
    return Treatment.READ_ONLY if below(path, SERVICES) else Treatment.PRIVATE


def below(path: str, folders: tuple[str, ...]) -> bool:
    """Return True if ``path`` is one of ``folders`` or inside one."""
    return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders)


def visible_mounts() -> dict[str, Mount]:
    """Return the mounts of this process that can be reached by their names, by these; of those inside real ones, only
    shared memory."""
    places = [place for place in ("/", *SERVICES) if os.path.isdir(place)]
    found = {place: Mount(place, FOLDER, True) for place in places}
    text = Path("/proc/self/mounts").read_text(errors="surrogateescape")  # psutil reads /etc/mtab, which may be old
    for _device, place, kind, options, *_ in map(str.split, text.splitlines()):
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), place)
        found[point] = Mount(point, kind, "rw" in options.split(","))  # of several at one point the last hides the rest
    kept: dict[str, Mount] = {}
    real: tuple[str, ...] = ()
    for point, mount in sorted(found.items()):
        if point == SHARED_MEMORY or not below(point, real):
            kept[point] = mount
            real += (point,) if mount.treatment is Treatment.REAL else ()
    return kept


def default_bytes() -> int:
    """Return how much a trial may write: a quarter of the memory that is available now, 2 GiB at most."""
    return min(MOST_BYTES, int(psutil.virtual_memory().available * SHARE_OF_MEMORY))
