"""A mount namespace of its own, in which every writable filesystem is covered by an overlay. For root."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from autotune.trial import process_tree
from autotune.trial.isolation import descriptors, kernel
from autotune.trial.isolation.mounts import Mount, below, visible
from autotune.trial.isolation.room import Room
from autotune.trial.isolation.sandbox import Entered, Sandbox
from autotune.trial.isolation.world import World

NAME = "overlay"
OUTSIDE, ROOM = "outside", "room"
"""Below scratch: where the former root is put, hidden; and where a room is mounted. Empty when seen from outside."""
ALL_USERS = 2**32 - 1


def enter(sandbox: Sandbox) -> Entered:
    """Take this way.

    Raises:
        OSError: it is not permitted here.
    """
    check_threads()
    kernel.unshare(kernel.CLONE_NEWNS)
    return cover(sandbox, visible())


def check_threads() -> None:
    """A namespace is taken by one thread, so there must be no other.

    Raises:
        OSError: there is.
    """
    if (threads := process_tree.own_threads()) > 1:
        raise OSError(f"{threads - 1} extra thread(s) run in this process")


def cover(sandbox: Sandbox, mounts: list[Mount]) -> Entered:
    """Build a new root of overlays in this mount namespace and move there; ``mounts`` are what it consists of."""
    kernel.keep_mounts_private()
    scratch, within = str(sandbox.scratch), _in_user_namespace()
    outside = f"{scratch}/{OUTSIDE}"
    os.makedirs(outside, exist_ok=True)
    options = "userxattr" if within else "redirect_dir=on"
    room = f"{scratch}/{ROOM}"
    try:
        world = World(Room.open(room, sandbox.room, options), mounts, split=within)
        root = world.build(passed=scratch)
        if (limit := world.limit(sandbox.origin)) is not None:
            raise OSError(limit)
        kernel.swap_root(root, f"{root}{outside}")
        kernel.mount("none", outside, "tmpfs", kernel.MS_RDONLY, "size=4k,mode=000")
    except OSError:
        with contextlib.suppress(OSError):
            kernel.detach(room)
        raise
    finally:
        os.chdir(sandbox.origin)
    covered = {point: [f"{outside}{upper}", f"{outside}{point}"] for point, upper in world.layers.items()}
    return Entered(_Nest(sandbox, tuple(mounts), options, covered), tuple(world.limits.values()))


@dataclass(frozen=True)
class _Nest:
    """Gives a trial overlays of its own above those that the script wrote to before the fork. The kernel stacks two at
    most, and in a container the first is the container's: there the folders of both are put into one (`covered`)."""

    sandbox: Sandbox
    mounts: tuple[Mount, ...]
    options: str
    covered: dict[str, list[str]]
    """{point: what the script writes to, and what is below it}, as seen once the cover is taken away."""

    def __call__(self, folder: Path) -> None:
        """Move there; ``folder`` is the trial's own."""
        scratch, before = str(self.sandbox.scratch), os.getcwd()
        kernel.unshare(kernel.CLONE_NEWNS)
        kernel.keep_mounts_private()
        kernel.detach(f"{scratch}/{OUTSIDE}")  # the cover: the former root is seen again
        room = Room.open(f"{folder}/{ROOM}", self.sandbox.room, self.options)
        world = World(room, list(self.mounts), split="userxattr" in self.options, below=self.covered)
        root = world.build(passed=scratch)
        kernel.swap_root(root, f"{root}{scratch}/{OUTSIDE}")
        kernel.detach(f"{scratch}/{OUTSIDE}")
        os.chdir(before)
        descriptors.reopen(lambda path: None if below(path, (scratch,)) else path)


def _in_user_namespace() -> bool:
    """Whether this process is in another user namespace than the machine's first."""
    first, _, count = Path("/proc/self/uid_map").read_text().split("\n")[0].split()
    return (int(first), int(count)) != (0, ALL_USERS)
