"""The files of a machine, read and never written."""

from __future__ import annotations

import os
import stat as stat_module
from dataclasses import dataclass


@dataclass(frozen=True)
class FileStat:
    """Owner (user id) and permission bits of what a path leads to."""

    owner: int
    mode: int

    @property
    def only_root_writes(self) -> bool:
        """Whether its owner is root and nobody else may write."""
        return self.owner == 0 and not self.mode & 0o022


@dataclass(frozen=True)
class DiskSpace:
    """Size of a file system and the space left for ordinary users, in bytes."""

    total: int
    free: int


class Files:
    """The files of the machine this process runs on."""

    prefix = ""
    """Put in front of every absolute path; a recorded machine lives under a folder."""

    def read(self, path: str) -> str | None:
        """Text of a file without surrounding white space, or None where it is absent or unreadable."""
        try:
            with open(self.prefix + path, encoding="utf-8", errors="replace") as file:
                return file.read().strip()
        except (OSError, ValueError):
            return None

    def list(self, path: str) -> tuple[str, ...]:
        """Sorted names in a folder; empty where it is absent or unreadable."""
        try:
            return tuple(sorted(os.listdir(self.prefix + path)))
        except OSError:
            return ()

    def exists(self, path: str) -> bool:
        """Whether the path leads to something."""
        return os.path.exists(self.prefix + path)

    def resolve(self, path: str) -> str:
        """The path with every symbolic link followed."""
        real = os.path.realpath(self.prefix + path)
        return real[len(os.path.realpath(self.prefix)) :] if self.prefix else real

    def stat(self, path: str) -> FileStat | None:
        """Owner and permissions of what the path leads to, or None."""
        try:
            found = os.stat(self.prefix + path)
        except OSError:
            return None
        return FileStat(found.st_uid, stat_module.S_IMODE(found.st_mode))

    def space(self, path: str) -> DiskSpace | None:
        """Size and free space of the file system under the path, or None."""
        try:
            found = os.statvfs(path)
        except (OSError, AttributeError):
            return None
        return DiskSpace(found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail)
