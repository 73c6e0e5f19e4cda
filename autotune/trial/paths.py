"""The one owner of the file names that trials use."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

LONGEST_PATH = 107
"""Characters in the path of a Unix socket on Linux."""
LONGEST_FOLDER = LONGEST_PATH - len("/pymp-12345678/listener-12345678")
SCRATCH_PREFIX = "autotune-"
OWNER = ".autotune-owner"
"""A file in each scratch folder. The process that made it holds a lock on the folder, which the kernel releases."""
SHORT = Path("/tmp")
"""Holds the scratch folder if names in the system's temporary folder would be too long."""
PRIVATE_PREFIX = "p"
"""Of the folders of processes that run a script without a mount namespace; eight characters follow."""
DEEPEST = f"{PRIVATE_PREFIX}12345678/tmp"
"""Of the folders in a scratch folder that serve as a temporary folder: the longest."""


def fits(folder: str) -> bool:
    """Return True if loader workers start if this is the temporary folder."""
    return len(folder) <= LONGEST_FOLDER


@dataclass(frozen=True)
class StudyPaths:
    """The scratch folder of one tuning run."""

    root: Path
    lock: int | None = field(default=None, compare=False)
    """Descriptor of the locked folder, which shows that the run lives; None if there is none."""

    @classmethod
    def create(cls) -> StudyPaths:
        """Make a new private folder in the system's temporary folder, or in `SHORT` if only so loader workers start."""
        usual = tempfile.gettempdir()
        # If even the temporary folder is too long, the user's training fails too.
        too_long = fits(usual) and not fits(f"{usual}/{SCRATCH_PREFIX}12345678/{DEEPEST}")
        folder = SHORT if too_long and os.access(SHORT, os.W_OK) else None
        root = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=folder))
        lock = os.open(root, os.O_RDONLY)
        with contextlib.suppress(OSError):  # without locks, nobody will remove the folder
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (root / OWNER).touch()
        return cls(root, lock)

    def trial(self, number: int) -> Path:
        """Return the working folder of trial ``number``, which is also its TMPDIR."""
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
        if self.lock is not None:
            os.close(self.lock)


def mark(trial: Path) -> str:
    """Return the part of the names of shared memory that only the trial in the folder ``trial`` has."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", f"{trial.parent.name[-60:]}-{trial.name[-60:]}.")
