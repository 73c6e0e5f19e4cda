"""As `overlay`, in a user namespace of its own. For users without privileges, where the kernel allows it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from autotune.trial.isolation import kernel
from autotune.trial.isolation.mounts import FOLDER, KEPT, Mount, below, outer_first, visible
from autotune.trial.isolation.sandbox import Entered, Sandbox
from autotune.trial.isolation.ways import overlay

NAME = "user namespace overlay"
TEMPORARY = ("/tmp", "/var/tmp")


def enter(sandbox: Sandbox) -> Entered:
    """Take this way.

    Raises:
        OSError: it is not permitted here.
    """
    overlay.check_threads()
    uid, gid = os.getuid(), os.getgid()
    mounts = visible()
    taken = {mount.point for mount in mounts}
    shared = [Mount(folder, FOLDER, True) for folder in _shared_folders(sandbox, uid) if folder not in taken]
    kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
    kernel.map_own_user(uid, gid)
    return overlay.cover(sandbox, outer_first([*mounts, *shared]))


def _shared_folders(sandbox: Sandbox, uid: int) -> Iterator[str]:
    """Folders of other users that this one may write to. They need overlays of their own: inside another, they would
    have to be copied with their owner, whom the user namespace does not know."""
    places = [sandbox.origin, *sandbox.origin.parents, Path.home(), *map(Path, TEMPORARY)]
    for folder in dict.fromkeys(str(each.resolve()) for each in places):
        if folder != "/" and not below(folder, KEPT) and os.access(folder, os.W_OK) and os.stat(folder).st_uid != uid:
            yield folder
