"""Where this process sits in the control groups, version 1, version 2 or both at once.

A limit may sit on any ancestor, every version-1 controller may have a path of its own, and inside a container the path
in ``/proc/self/cgroup`` is often the host's and cannot be seen: then the root of the mount is our own group.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from autotune.probes.system import System


@dataclass(frozen=True)
class Mount:
    """One line of ``/proc/self/mountinfo``: which part (``root``) of what is seen at ``point``."""

    device: str
    root: str
    point: str
    filesystem: str
    source: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """One control group folder and the version of its hierarchy (1 or 2)."""

    folder: str
    version: int

    def read(self, system: System, name: str) -> str | None:
        """Return the text of one of its files, or None."""
        return system.read(posixpath.join(self.folder, name))


def parse_membership(text: str) -> dict[str, str]:
    """Read ``/proc/self/cgroup`` as controller -> path; version 2 has the empty controller name."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                found[controller] = parts[2]
    return found


def parse_mounts(text: str) -> tuple[Mount, ...]:
    """Read ``/proc/self/mountinfo``; lines that do not read as mounts are left out."""
    mounts = []
    for line in text.splitlines():
        left, separator, right = line.partition(" - ")
        before, after = left.split(" "), right.split(" ")
        if separator and len(before) >= 6 and len(after) >= 3:
            device, root, point = before[2], _unescape(before[3]), _unescape(before[4])
            mounts.append(Mount(device, root, point, after[0], _unescape(after[1]), tuple(after[2].split(","))))
    return tuple(mounts)


def ancestors(system: System, controller: str) -> tuple[Group, ...]:
    """Return this process's group for a controller and every visible ancestor, innermost first, if any."""
    membership = parse_membership(system.read("/proc/self/cgroup") or "")
    mounts = parse_mounts(system.read("/proc/self/mountinfo") or "")
    # On hybrid hosts version 1 owns the controllers it lists, so it is asked first.
    for version, name, filesystem in ((1, controller, "cgroup"), (2, "", "cgroup2")):
        path = membership.get(name)
        mount = _mount_for(mounts, filesystem, name, path)
        if path is not None and mount is not None:
            return tuple(Group(folder, version) for folder in _folders(system, mount, path))
    return ()


def _mount_for(mounts: tuple[Mount, ...], filesystem: str, controller: str, path: str | None) -> Mount | None:
    """Return the mount that shows the controller, preferably one whose root holds the path."""
    fitting = [m for m in mounts if m.filesystem == filesystem and (not controller or controller in m.options)]
    holding = [m for m in fitting if path is not None and _below(m.root, path) is not None]
    return next(iter(holding or fitting), None)


def _folders(system: System, mount: Mount, path: str) -> list[str]:
    """Return the folders from the group up to the root of the mount, as far as they can be seen."""
    folders = []
    relative = _below(mount.root, path) or ""
    while relative:
        folder = posixpath.join(mount.point, relative)
        if system.exists(folder):
            folders.append(folder)
        relative = posixpath.dirname(relative)
    return [*folders, mount.point]


def _below(root: str, path: str) -> str | None:
    """Return ``path`` relative to ``root``, or None if it lies outside (which a namespace shows as ``/..``)."""
    if ".." in path.split("/"):
        return None
    relative = posixpath.relpath(path, root) if path.startswith("/") and root.startswith("/") else ".."
    if relative.startswith(".."):
        return None
    return "" if relative == "." else relative


def _unescape(text: str) -> str:
    """Undo the kernel's octal for blanks, tabs, newlines and backslashes in paths."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
