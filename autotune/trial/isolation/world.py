"""A root folder that looks like the user's, in which every write lands in the trial's room.

Each filesystem is covered by an overlay of its own. In a user namespace, the kernel refuses an overlay of a folder
with mounts inside (it would show what they hide): such a folder is *split*: made anew, each part with its overlay.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autotune.trial.isolation import kernel
from autotune.trial.isolation.mounts import FOLDER, Mount, Treatment, below
from autotune.trial.isolation.room import Room, look_like, place_files

_SHARED_SEGMENT = re.compile(r"(?:sem\.|psm_|torch_|__KMP_|mpich_|nccl-|cuda|pym-)")


@dataclass
class World:
    """Builds the new root.

    Attributes:
        room: takes what is written.
        mounts: what is there, outer ones first.
        split: whether folders with mounts inside are split.
        below: {point: the folders to show there where what is seen there now cannot be below an overlay}; empty before
            the fork.
        stacked: whether overlays go above what is seen now; False once the kernel has refused that.
        layers: {point: the folder that takes what is written there}, of the overlays made so far.
        limits: {point: what is different there}, of what could not be covered.
    """

    room: Room
    mounts: list[Mount]
    split: bool
    below: Mapping[str, list[str]] = field(default_factory=dict)
    stacked: bool = True
    layers: dict[str, str] = field(default_factory=dict)
    limits: dict[str, str] = field(default_factory=dict)

    def build(self, passed: str) -> str:
        """Build it; ``passed`` is the one folder that stays the real one. Returns where the new root is."""
        for mount in self.mounts:
            self._place(mount)
        os.makedirs(self._target(passed), exist_ok=True)
        kernel.bind(passed, self._target(passed), recursive=False)
        return self.room.root

    def limit(self, folder: Path) -> str | None:
        """What is different in ``folder``; None where it is covered."""
        points = [point for point in (*self.layers, *self.limits) if below(str(folder), (point,))]
        return self.limits.get(max(points, key=len, default=""))

    def _target(self, point: str) -> str:
        return self.room.root + point.rstrip("/")

    def _place(self, mount: Mount) -> None:
        if not os.path.lexists(self._target(mount.point)):
            return  # hidden by a mount that came later
        if mount.treatment is Treatment.COVERED:
            self._cover(mount.point)
        elif mount.treatment is Treatment.OWN:
            self._own_shared_memory(mount.point)
        else:
            self._show(mount.point, read_only=mount.treatment is Treatment.READ_ONLY)

    def _cover(self, point: str) -> None:
        if self.split and self._mounts_inside(point):
            self._split(point)
            return
        for lowers in self._choices(point):
            try:
                self.layers[point] = self.room.overlay(lowers, self._target(point))
            except OSError:
                self.stacked &= point not in self.below
            else:
                return
        if not os.path.lexists(point):
            return  # somebody has removed it meanwhile
        self._show(point, read_only=True)
        self.limits[point] = f"{point} can only be read: it cannot be below an overlay"

    def _show(self, point: str, *, read_only: bool) -> None:
        """What is there, as it is."""
        try:
            kernel.bind(point, self._target(point))
            if read_only:
                kernel.make_read_only(self._target(point))
        except OSError as error:  # somebody's FUSE, which even root may not look at
            self.limits[point] = f"{point} is left as it is: {error.strerror}"

    def _choices(self, point: str) -> Iterator[list[str]]:
        """The folders that an overlay at ``point`` may have below it, best first."""
        if self.stacked or point not in self.below:
            yield [point]
        if point in self.below:
            yield self.below[point]

    def _mounts_inside(self, point: str) -> bool:
        return any(each.point != point and below(each.point, (point,)) for each in self.mounts if each.kind != FOLDER)

    def _split(self, point: str) -> None:
        """A new folder with an overlay for each folder in it."""
        target = self._target(point)
        kernel.bind(target, target)  # a mount point, as the new root must be
        look_like(target, point)
        self._fill(point, list(_entries(point)))

    def _fill(self, point: str, entries: list[os.DirEntry[str]]) -> None:
        """Put ``entries`` of ``point`` there."""
        points = {mount.point for mount in self.mounts}
        folders = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
        for folder in folders:
            os.mkdir(self._target(folder.path))
            if _is_empty(folder.path):
                with contextlib.suppress(FileNotFoundError):
                    look_like(self._target(folder.path), folder.path)
            elif folder.path not in points:
                self._cover(folder.path)
        place_files((entry for entry in entries if entry not in folders), self._target(point))

    def _own_shared_memory(self, point: str) -> None:
        """An empty one, with what is no shared memory but somebody's files. One that the script has begun to use before
        the fork is kept, since its processes would not find each other in another."""
        entries = list(_entries(point))
        segments = [entry for entry in entries if _SHARED_SEGMENT.match(entry.name)]
        if segments and self.below:
            return
        size = os.statvfs(point).f_frsize * os.statvfs(point).f_blocks
        flags = kernel.MS_NOSUID | kernel.MS_NODEV
        kernel.mount("tmpfs", self._target(point), "tmpfs", flags, f"size={size},mode=1777")
        self._fill(point, [entry for entry in entries if entry not in segments])


def _is_empty(folder: str) -> bool:
    try:
        return not any(_entries(folder))
    except OSError:
        return False


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        yield from found
