"""The one owner of the file names that trials use."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

SCRATCH_PREFIX = "autotune-"


def session_file(task: Path) -> Path:
    """Where the pickled functions of a session's task file lie."""
    return task.with_suffix(".pickle")


@dataclass(frozen=True)
class StudyPaths:
    """The scratch folder of one tuning run."""

    root: Path

    @classmethod
    def create(cls) -> StudyPaths:
        """A new private folder in the system's temporary folder."""
        return cls(Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX)))

    def trial(self, number: int) -> Path:
        """Working folder of trial ``number``; also its TMPDIR."""
        return self.root / f"t{number}"

    @property
    def compile_cache(self) -> Path:
        """TorchInductor's cache for this study: the user's own stays untouched, and first compiles are timed cold."""
        return self.root / "inductor"

    def remove(self) -> None:
        """Delete everything."""
        shutil.rmtree(self.root, ignore_errors=True)
