"""A user's home and working folder, and what a trial is not to change of them."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CHILD = Path(__file__).parent / "child.py"
ROOT = Path(__file__).resolve().parents[3]
ROOM = 64 * 2**20


def tree_hash(folder: Path) -> str:
    """Of names, modes, links and contents below ``folder``."""
    found = hashlib.sha256()
    for path in sorted([folder, *folder.rglob("*")]):
        info = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(info.st_mode) else b""
        link = os.readlink(path) if path.is_symlink() else ""
        found.update(repr((str(path.relative_to(folder)), info.st_mode, link)).encode() + content)
    return found.hexdigest()


@dataclass(frozen=True)
class UsersWorld:
    """Attributes: the folder that holds everything, and the parts."""

    root: Path
    way: str

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def origin(self) -> Path:
        return self.home / "project" / "src"

    @property
    def scratch(self) -> Path:
        return self.root / "scratch"

    def fill(self) -> None:
        """Make the files."""
        (self.origin / "data").mkdir(parents=True)
        (self.home / ".cache" / "torch").mkdir(parents=True)
        self.scratch.mkdir()
        (self.home / ".cache" / "torch" / "weights").write_bytes(b"weights")
        (self.origin / "train.csv").write_text("a,b\n1,2\n")
        (self.origin / "large.bin").write_bytes(b"0" * (2**20 + 1))
        (self.origin / "data" / "part-0").write_text("part")
        (self.home / "notes.txt").write_text("notes")

    def run(self, *trials: str, before: str = "", network: bool = False, room: int = ROOM) -> list[dict[str, Any]]:
        """What each of ``trials`` said; skips where the way is not permitted here."""
        task = {"way": self.way, "scratch": str(self.scratch), "origin": str(self.origin), "before": before}
        task |= {"trials": trials, "network": network, "room": room}
        variables = os.environ | {"HOME": str(self.home), "PYTHONPATH": str(ROOT), "AUTOTUNE_TRIAL": "1"}
        for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
            variables.pop(name, None)
        command = [sys.executable, str(CHILD), json.dumps(task)]
        done = subprocess.run(command, env=variables, cwd=self.origin, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        said = [json.loads(line) for line in done.stdout.splitlines()]
        if "refused" in said[0]:
            pytest.skip(said[0]["refused"])
        assert len(said) == len(trials), done.stdout + done.stderr
        return said
