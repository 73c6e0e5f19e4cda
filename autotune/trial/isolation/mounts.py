"""Which filesystems this process sees, and what a trial may do with each."""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

KEPT = ("/proc", "/sys", "/dev")
"""Trees of the kernel, left as they are: devices, limits, processes."""
SHARED_MEMORY = "/dev/shm"
SERVICES = ("/run",)
"""Sockets of the machine's services: they can be used, but nothing may be written beside them."""
NO_FILES = {"proc", "sysfs", "devtmpfs", "devpts", "mqueue", "cgroup", "cgroup2", "securityfs", "debugfs", "tracefs"}
NO_FILES |= {"bpf", "configfs", "pstore", "efivarfs", "hugetlbfs", "binfmt_misc", "autofs", "fusectl", "nsfs"}
"""Kinds of filesystems that hold no user's files."""


FOLDER = "folder"
"""The kind of a `Mount` that is none: a folder that is treated by itself all the same."""


class Treatment(enum.Enum):
    """What happens to a mount in a trial."""

    KEPT = "kept as it is"
    READ_ONLY = "read only"
    COVERED = "covered by an overlay"
    OWN = "empty, the trial's own"


@dataclass(frozen=True)
class Mount:
    """One line of ``/proc/self/mountinfo``: where, which kind of filesystem, and whether it may be written to."""

    point: str
    kind: str
    writable: bool

    @property
    def treatment(self) -> Treatment:
        """What happens to it."""
        if self.point == SHARED_MEMORY:
            return Treatment.OWN
        if below(self.point, KEPT) or self.kind in NO_FILES:
            return Treatment.KEPT
        if below(self.point, SERVICES) or not self.writable or not os.path.isdir(self.point):
            return Treatment.READ_ONLY
        return Treatment.COVERED


def below(path: str, folders: tuple[str, ...]) -> bool:
    """Whether ``path`` is one of ``folders`` or inside one."""
    return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders)


def parse(text: str) -> list[Mount]:
    """The mounts of a ``mountinfo`` text, outer ones first; of several at one point the last, which hides the rest."""
    found: dict[str, Mount] = {}
    for line in text.splitlines():
        place, _, rest = line.partition(" - ")
        point, options = place.split(" ")[4:6]
        kind, _, super_options = rest.split(" ", 2)
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), point)
        writable = "rw" in options.split(",") and "rw" in super_options.split(",")
        found[point] = Mount(point, kind, writable)
    return outer_first(found.values())


def outer_first(mounts: Iterable[Mount]) -> list[Mount]:
    """``mounts``, each after those that it lies in."""
    return sorted(mounts, key=lambda mount: (mount.point.rstrip("/").count("/"), mount.point))


def visible() -> list[Mount]:
    """The mounts of this process that can be reached by their name, outer ones first; those inside kept trees not."""
    found: list[Mount] = []
    kept: tuple[str, ...] = ()
    for each in parse(Path("/proc/self/mountinfo").read_text(errors="surrogateescape")):
        if each.treatment is Treatment.OWN or not below(each.point, kept):
            found.append(each)
            kept += (each.point,) if each.treatment is Treatment.KEPT else ()
    taken = {each.point for each in found}
    services = [Mount(point, FOLDER, True) for point in SERVICES if point not in taken and Path(point).is_dir()]
    return outer_first([*found, *services])
