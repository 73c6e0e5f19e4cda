"""The room of a trial: a filesystem in memory that takes what is written, and is gone with the trial's last process."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.trial.isolation import kernel

ROOM_BYTES = 2 * 2**30
SHARE_OF_MEMORY = 0.25


def default_bytes() -> int:
    """A quarter of the memory that is available now, 2 GiB at most."""
    with contextlib.suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        available = next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))
        return min(ROOM_BYTES, int(int(available) * 1024 * SHARE_OF_MEMORY))
    return ROOM_BYTES


@dataclass
class Room:
    """Makes overlays whose writes land in `folder`.

    Attributes:
        folder: where the room is mounted.
        options: of overlays, beside their folders.
        count: how many overlays there are.
    """

    folder: str
    options: str
    count: int = 0

    @classmethod
    def open(cls, folder: str, size: int, options: str) -> Room:
        """Mount an empty one of ``size`` bytes at ``folder``.

        Raises:
            OSError: no, or it cannot keep what an overlay writes down beside a file.
        """
        os.makedirs(folder, exist_ok=True)
        kernel.mount("tmpfs", folder, "tmpfs", kernel.MS_NODEV, f"size={size},mode=755")
        if "userxattr" in options:
            _check_attributes(folder)
        for part in ("root", "upper", "work", "lower"):
            os.mkdir(f"{folder}/{part}")
        return cls(folder, options)

    @property
    def root(self) -> str:
        """An empty folder: the new root is built there."""
        return f"{self.folder}/root"

    def overlay(self, lowers: Sequence[str], target: str) -> str:
        """Show ``lowers``, the first above the others, at ``target``; returns the folder that takes what is written."""
        number, self.count = self.count, self.count + 1
        upper, work = f"upper/{number}", f"work/{number}"
        before = os.getcwd()
        os.chdir(self.folder)  # names without a comma or a colon, which are signs between options
        try:
            os.mkdir(upper)
            os.mkdir(work)
            look_like(upper, lowers[0])
            links = [f"lower/{number}.{position}" for position in range(len(lowers))]
            for link, lower in zip(links, lowers, strict=True):
                os.symlink(lower, link)
            folders = f"lowerdir={':'.join(links)},upperdir={upper},workdir={work}"
            kernel.mount("overlay", target, "overlay", 0, ",".join(filter(None, (folders, self.options))))
        finally:
            os.chdir(before)
        return f"{self.folder}/{upper}"


def _check_attributes(folder: str) -> None:
    try:
        os.setxattr(folder, "user.overlay.probe", b"y")
    except OSError as error:
        raise OSError(errno.ENOTSUP, "tmpfs keeps no user attributes before Linux 6.6") from error


def look_like(folder: str, model: str) -> None:
    """Give ``folder`` the owner, as far as that is permitted, and the mode of ``model``."""
    info = os.stat(model)
    with contextlib.suppress(OSError):
        os.chown(folder, info.st_uid, info.st_gid)
    os.chmod(folder, stat.S_IMODE(info.st_mode))


COPIED_BYTES = 2**20


def place_files(entries: Iterable[os.DirEntry[str]], target: str) -> None:
    """Put what is no folder into ``target``: links and small files as copies, all else for reading only. What somebody
    removes meanwhile is left out."""
    for entry in entries:
        with contextlib.suppress(FileNotFoundError):
            _place_file(entry, f"{target}/{entry.name}")


def _place_file(entry: os.DirEntry[str], copy: str) -> None:
    if entry.is_symlink():
        os.symlink(os.readlink(entry.path), copy)
    elif entry.is_file() and entry.stat().st_size <= COPIED_BYTES and os.access(entry.path, os.R_OK):
        shutil.copy2(entry.path, copy)
    else:
        Path(copy).touch()
        kernel.bind(entry.path, copy)
        kernel.make_read_only(copy)
