"""The one owner of the file names that trials use."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

LONGEST_PATH = 107
"""Characters in the path of a Unix socket on Linux."""
LONGEST_FOLDER = LONGEST_PATH - len("/pymp-12345678/listener-12345678")
SCRATCH_PREFIX = "autotune-"
OWNER = ".autotune-owner"
"""A file in each scratch folder. The process that made it holds a lock on it, which the kernel releases at its end."""
SHARED_MEMORY = Path("/dev/shm")
SHORT = Path("/tmp")
"""Holds the scratch folder if names in the system's temporary folder would be too long."""
PRIVATE_PREFIX = "p"
"""Of the folders of processes that run a script without a mount namespace; eight characters follow."""
DEEPEST = f"{PRIVATE_PREFIX}12345678/tmp"
"""Of the folders in a scratch folder that serve as a temporary folder: the longest."""


def fits(folder: str) -> bool:
    """Return whether loader workers start if this is the temporary folder."""
    return len(folder) <= LONGEST_FOLDER


@dataclass(frozen=True)
class StudyPaths:
    """The scratch folder of one tuning run."""

    root: Path
    owner: IO[bytes] | None = field(default=None, compare=False)
    """The locked file, which shows that the run lives; None if there is none."""

    @classmethod
    def create(cls) -> StudyPaths:
        """Make a new private folder in the system's temporary folder, or in `SHORT` if only so loader workers start."""
        usual = tempfile.gettempdir()
        # If even the temporary folder is too long, the user's training fails too.
        too_long = fits(usual) and not fits(f"{usual}/{SCRATCH_PREFIX}12345678/{DEEPEST}")
        folder = SHORT if too_long and os.access(SHORT, os.W_OK) else None
        root = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=folder))
        return cls(root, _own(root))

    def trial(self, number: int) -> Path:
        """Working folder of trial ``number``; also its TMPDIR."""
        return self.root / f"t{number}"

    @property
    def compile_cache(self) -> Path:
        """Return TorchInductor's cache for this study: the user's own stays untouched, first compiles are cold."""
        return self.root / "inductor"

    def first_steps(self, batch: int) -> Path:
        """Return the baseline's first steps with a global batch of ``batch``."""
        return self.root / f"first_steps{batch}.pt"

    def remove(self) -> None:
        """Delete everything."""
        shutil.rmtree(self.root, ignore_errors=True)
        if self.owner is not None:
            self.owner.close()


def mark(study: Path, trial: Path | None = None) -> str:
    """Return the part of the names of Python's shared memory that only ``study`` has, or only its ``trial``."""
    own = "" if trial is None else f"{trial.name[-60:]}."
    return re.sub(r"[^A-Za-z0-9_.-]", "-", f"{study.name[-60:]}-{own}")


def mpi_segments(study: Path, trial: Path) -> tuple[str, ...]:
    """Return the names that MPICH gives to shared memory of the MPI job of ``trial``: FNV-1a hashes of its name."""
    world = 2166136261
    for byte in mark(study, trial).encode():
        world = (world ^ byte) * 16777619 % 2**32
    return tuple(f"mpich_{kind}_{world:x}_0" for kind in ("shm", "vci"))


def remove_abandoned() -> None:
    """Remove scratch folders of this user, and shared memory named after them, whose process ended without doing it.

    A folder without an owner's file is somebody else's work.
    """
    for root in {found for place in (tempfile.gettempdir(), SHORT) for found in Path(place).glob(f"{SCRATCH_PREFIX}*")}:
        with contextlib.suppress(OSError), _lock_of_the_dead(root):
            for kind in ("psm_", "sem.mp-"):
                for segment in SHARED_MEMORY.glob(f"{kind}{mark(root)}*"):
                    segment.unlink()
            for trial in root.glob("t*"):
                for segment in map(SHARED_MEMORY.joinpath, mpi_segments(root, trial)):
                    if segment.exists() and segment.lstat().st_uid == os.geteuid():
                        segment.unlink()
            shutil.rmtree(root, ignore_errors=True)


def _own(root: Path) -> IO[bytes] | None:
    """Return the locked owner's file of ``root``. It is locked before it gets its name: nobody finds it unlocked."""
    try:
        file = (root / f"{OWNER}.new").open("xb")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(file.name, root / OWNER)
    except OSError:  # a full disk, or a file system without locks: nobody will remove the folder
        return None
    return file


@contextlib.contextmanager
def _lock_of_the_dead(root: Path) -> Iterator[None]:
    """Hold the lock of a dead process's folder. Raises OSError if the process lives or is another user's."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        owner = os.open(OWNER, os.O_RDWR | os.O_NOFOLLOW, dir_fd=folder)
    finally:
        user = os.fstat(folder).st_uid
        os.close(folder)
    try:
        if user != os.geteuid() or os.fstat(owner).st_uid != user:
            raise PermissionError(root)
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(owner)
