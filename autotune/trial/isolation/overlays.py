"""The first way: a mount namespace in which overlays cover all that can be written to.

A process takes one directly if it may (root), else through a user namespace of its own. What is written goes to
a tmpfs of limited size, and is gone with the last process.

An overlay is mounted over each filesystem and over each folder of the root folder. In a user namespace, the kernel
refuses an overlay of a folder with mounts inside (it would show what they hide): such a folder can only be read, as the
root folder itself, and each folder in it gets its overlay.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from autotune import linux
from autotune.trial import process_tree
from autotune.trial.isolation.private import FOLDER, Entered, Mount, Treatment, below, treatment, visible_mounts

NAME = "overlay"
NEW_MOUNTS, NEW_USER = 0x00020000, 0x10000000
READ_ONLY, NO_SUID, NO_DEVICES, NO_EXEC, REMOUNT, MOVE = 1, 2, 4, 8, 32, 8192
NO_ATIME, NO_DIR_ATIME, BIND, RECURSIVE, PRIVATE, RELATIVE_ATIME = 1024, 2048, 4096, 16384, 1 << 18, 1 << 21
DETACH = 2
TMPFS = "room"
"""The folder in scratch or in the trial's own where a tmpfs is mounted. It is empty when seen from outside."""
ALL_USERS = 2**32 - 1
_SHARED_SEGMENT = re.compile(r"(?:sem\.|psm_|torch_|__KMP_|mpich_|nccl-|cuda|pym-)")


def enter(scratch: Path, origin: Path, size: int) -> Entered:
    """Take this way.

    Args:
        scratch: the study's folder, which stays the real one; without links.
        origin: the user's working folder; likewise.
        size: bytes that the script may write, and each trial.

    Raises:
        OSError: it is not permitted here, or cannot cover ``origin``.
    """
    if (threads := process_tree.own_threads()) > 1:  # a namespace is taken by one thread
        raise OSError(f"{threads - 1} extra thread(s) run in this process")
    mounts = visible_mounts()
    shared = {folder: Mount(folder, FOLDER, True) for folder in _shared_folders(origin)}
    if _take_namespace():
        mounts = shared | mounts
    os.chdir(scratch)
    try:
        view = Overlays(scratch, TMPFS, size, mounts)
        view.check(str(origin))
        view.build()
        _mount(TMPFS, f"{scratch}/{TMPFS}", None, MOVE)
        _mount("none", f"{scratch}/{TMPFS}", "tmpfs", READ_ONLY, "size=4k,mode=000")  # hides it
    except OSError:
        with contextlib.suppress(OSError):
            _detach(TMPFS)
        raise
    finally:
        os.chdir(origin)

    def nest(folder: Path) -> Callable[[str], str | None]:
        """Move into overlays above those that the script wrote to."""
        before = os.getcwd()
        linux.call("unshare", NEW_MOUNTS)
        _keep_mounts_private()
        os.chdir(scratch)
        _detach(TMPFS)  # what hides it
        own = f"{folder.relative_to(scratch)}/{TMPFS}"
        Overlays(scratch, own, size, mounts, view).build()
        for tmpfs in (own, TMPFS):
            _detach(tmpfs)  # overlays keep what they need of it
        os.chdir(before)
        return lambda path: None if below(path, (str(scratch),)) else path

    return nest, ()


def _take_namespace() -> bool:
    """Give this process a mount namespace of its own; True if it took a user namespace, too."""
    through_user = False
    try:
        linux.call("unshare", NEW_MOUNTS)
    except PermissionError:
        uid, gid = os.getuid(), os.getgid()
        linux.call("unshare", NEW_USER | NEW_MOUNTS)
        own = {"setgroups": "deny", "uid_map": f"{uid} {uid} 1", "gid_map": f"{gid} {gid} 1"}
        for name, text in own.items():
            Path(f"/proc/self/{name}").write_text(text)
        through_user = True
    _keep_mounts_private()
    return through_user


def _shared_folders(origin: Path) -> Iterator[str]:
    """Yield folders of other users that this one may write to. They need overlays of their own: inside another, they
    would have to be copied with their owner, who does not exist in the user namespace."""
    places = [origin, *origin.parents, Path.home(), Path("/tmp"), Path("/var/tmp")]
    for folder in dict.fromkeys(str(each.resolve()) for each in places):
        private = folder != "/" and treatment(folder) is Treatment.PRIVATE
        if private and os.access(folder, os.W_OK) and os.stat(folder).st_uid != os.getuid():
            yield folder


class Overlays:
    """A view of all files, in the folder ``scratch``, whose writes go to a tmpfs.

    Args:
        scratch: stays the real one.
        tmpfs: the folder in scratch where the tmpfs is mounted.
        size: bytes that it takes.
        mounts: all that are shown, by their points.
        before: the view that the script has written to before the fork; None for the script itself.

    Attributes:
        seen: folder in the tmpfs that shows what was seen before.
        layers: {point: folder in the tmpfs that takes what is written there}, of the overlays made so far.
    """

    def __init__(
        self, scratch: Path, tmpfs: str, size: int, mounts: Mapping[str, Mount], before: Overlays | None = None
    ) -> None:
        self.scratch, self.tmpfs, self.mounts, self.before = str(scratch), tmpfs, mounts, before
        self.seen = f"{tmpfs}/seen"
        self.layers: dict[str, str] = {}
        os.makedirs(tmpfs, exist_ok=True)
        _mount("tmpfs", tmpfs, "tmpfs", NO_DEVICES, f"size={size},mode=755")
        self._in_user_namespace = _in_user_namespace()
        if self._in_user_namespace:
            _check_attributes(tmpfs)
        for part in ("seen", "upper", "work", "lower"):
            os.mkdir(f"{tmpfs}/{part}")
        _mount("/", self.seen, None, BIND | RECURSIVE)

    def check(self, folder: str) -> None:
        """Raise `OSError` if an overlay cannot cover ``folder``."""
        if folder == "/":
            raise OSError("the working folder is the root folder, which an overlay cannot cover")
        self._overlay([self.seen + folder], f"{self.tmpfs}/lower")
        _detach(f"{self.tmpfs}/lower")

    def build(self) -> None:
        """Cover everything."""
        if self.mounts["/"].treatment is Treatment.PRIVATE:
            self._cover_folders("/")
        for point, mount in sorted(self.mounts.items()):
            if point != "/" and os.path.lexists(point):  # else a mount that came later hides it
                self._place(mount)
        os.makedirs(self.scratch, exist_ok=True)
        _mount(".", self.scratch, None, BIND)
        _make_read_only("/")

    def _place(self, mount: Mount) -> None:
        point, found = mount.point, mount.treatment
        if found is Treatment.PRIVATE:
            self._cover(point)
        elif found is Treatment.SHARED_MEMORY:
            self._own_shared_memory(point)
        elif found is Treatment.READ_ONLY or below(point, tuple(self.layers)):
            self._show(point, read_only=found is Treatment.READ_ONLY)

    def _cover(self, point: str) -> None:
        """Put an overlay over ``point``; if that is refused, show it read only, with overlays over the folders in it.

        The kernel stacks two overlays, and in a container the first is the container's. So the script's own is not
        put below another: what it was made of is.
        """
        lowers = [self.seen + point]
        if self.before is not None and point in self.before.layers:
            lowers = [self.before.layers[point], self.before.seen + point]
        inside = [each for each, mount in self.mounts.items() if each != point and mount.kind != FOLDER]
        holds_mounts = any(below(each, (point,)) for each in inside)
        if not (holds_mounts and self._in_user_namespace):
            with contextlib.suppress(OSError):
                self.layers[point] = self._overlay(lowers, point)
                return
        if not os.path.lexists(self.seen + point):
            return  # it was a temporary folder
        self._show(point, read_only=True)
        if holds_mounts:
            self._cover_folders(point)

    def _cover_folders(self, point: str) -> None:
        """Cover the folders in ``point``, which itself can only be read."""
        try:
            entries = list(os.scandir(self.seen + point))
        except OSError:
            return  # it may not be read
        for entry in entries:
            path = f"{point.rstrip('/')}/{entry.name}"
            if entry.is_dir(follow_symlinks=False) and path not in self.mounts:
                self._cover(path)

    def _overlay(self, lowers: list[str], target: str) -> str:
        """Show ``lowers``, the first above the others, at ``target``; return the folder that takes what is written."""
        number = len(os.listdir(f"{self.tmpfs}/upper"))
        upper, work = f"{self.tmpfs}/upper/{number}", f"{self.tmpfs}/work/{number}"
        os.mkdir(upper)
        os.mkdir(work)
        _look_like(upper, lowers[0])
        # Names without a comma or a colon, which are signs between options.
        links = [f"{self.tmpfs}/lower/{number}.{position}" for position in range(len(lowers))]
        for link, lower in zip(links, lowers, strict=True):
            os.symlink(os.path.relpath(lower, f"{self.tmpfs}/lower"), link)
        # Without an index, a layer of one overlay may lie in another whatever the kernel's default is.
        folders = f"lowerdir={':'.join(links)},upperdir={upper},workdir={work},index=off"
        options = "userxattr" if self._in_user_namespace else "redirect_dir=on"
        _mount("overlay", target, "overlay", 0, f"{folders},{options}")
        return upper

    def _show(self, point: str, *, read_only: bool) -> None:
        """Show what is seen there, as it is. Raise `OSError` if that is refused, and the script might write there."""
        try:
            _mount(self.seen + point, point, None, BIND | RECURSIVE)
            if read_only:
                _make_read_only(point)
        except OSError:
            if os.access(point, os.W_OK):  # else another user's FUSE, which even root may not read
                raise

    def _own_shared_memory(self, point: str) -> None:
        """Show an empty one, with what is not shared memory but users' files. One that the script has begun to use
        before the fork is kept, since its processes would not find each other in another."""
        entries = list(os.scandir(point))
        files = [entry for entry in entries if not _SHARED_SEGMENT.match(entry.name)]
        if len(files) < len(entries) and self.before is not None:
            return
        size = os.statvfs(point).f_frsize * os.statvfs(point).f_blocks
        _mount("tmpfs", point, "tmpfs", NO_SUID | NO_DEVICES, f"size={size},mode=1777")
        for entry in files:
            if entry.is_dir(follow_symlinks=False):
                os.mkdir(entry.path)
                self._cover(entry.path)
            else:
                Path(entry.path).touch()
                self._show(entry.path, read_only=True)


def _look_like(folder: str, model: str) -> None:
    """Give ``folder`` the owner, as far as that is permitted, and the mode of ``model``."""
    info = os.stat(model)
    with contextlib.suppress(OSError):
        os.chown(folder, info.st_uid, info.st_gid)
    os.chmod(folder, stat.S_IMODE(info.st_mode))


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    linux.call("mount", source, target, kind, flags, options)


def _detach(target: str) -> None:
    """Unmount ``target`` with everything below it, also if it is in use."""
    linux.call("umount2", target, DETACH)


def _make_read_only(target: str) -> None:
    """Forbid writes through the mount at ``target``; mounts below it stay as they are."""
    has = os.statvfs(target).f_flag  # a user namespace must ask for these again
    kept = has & (NO_SUID | NO_DEVICES | NO_EXEC | NO_ATIME | NO_DIR_ATIME)
    kept |= RELATIVE_ATIME if has & os.ST_RELATIME else 0
    _mount("none", target, None, REMOUNT | BIND | READ_ONLY | kept)


def _keep_mounts_private() -> None:
    """Keep mounts made from now on in this mount namespace."""
    _mount("none", "/", None, RECURSIVE | PRIVATE)


def _in_user_namespace() -> bool:
    """Return True if this process is in another user namespace than the machine's first."""
    first, _, count = Path("/proc/self/uid_map").read_text().split("\n")[0].split()
    return (int(first), int(count)) != (0, ALL_USERS)


def _check_attributes(folder: str) -> None:
    """Raise `OSError` if the filesystem cannot keep what an overlay writes down beside a file."""
    try:
        os.setxattr(folder, "user.overlay.probe", b"y")
    except OSError as error:
        raise OSError(errno.ENOTSUP, "tmpfs keeps no user attributes before Linux 6.6") from error
