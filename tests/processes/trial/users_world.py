"""A user's home and working folder, and what a trial is not to change of them."""

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CHILD = Path(__file__).parent / "child.py"
ROOT = Path(__file__).resolve().parents[3]
ROOM = 64 * 2**20
SOMEBODY = 12345
NO_NAMESPACES = """
echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all "$@"
"""
"""Run by root of a user namespace, it starts a command that may not make another, and has no capabilities."""


@dataclass(frozen=True)
class Way:
    """How trials are isolated: by which of `isolate.WAYS`, for whom, and on which system.

    Attributes:
        name: of the way that must be taken.
        uid: of the user; None for the one who runs the tests.
        start: the command before Python.
        without: the system calls that begin so do not exist.
    """

    name: str
    uid: int | None = None
    start: tuple[str, ...] = ()
    without: str = ""


FORBIDS = ("unshare", "--user", "--map-root-user", "sh", "-c", NO_NAMESPACES, "sh")
WAYS = {
    "root": Way("overlay", uid=0),
    "user namespace": Way("overlay", uid=SOMEBODY),
    "no namespaces": Way("redirected", start=FORBIDS),
    "neither namespaces nor Landlock": Way("redirected", start=FORBIDS, without="landlock"),
}


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
    """Attributes: the folder that holds everything, and how trials are isolated from it."""

    root: Path
    way: Way

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def origin(self) -> Path:
        return self.home / "project" / "src"

    @property
    def scratch(self) -> Path:
        return self.root / "scratch"

    @property
    def uid(self) -> int:
        return os.getuid() if self.way.uid is None else self.way.uid

    def give(self, path: Path) -> None:
        """Make ``path`` the user's."""
        if self.uid != os.getuid():
            os.chown(path, self.uid, self.uid)

    def run(
        self, *trials: str, before: str = "", network: bool = False, room: int = ROOM, imports: Sequence[str] = ()
    ) -> list[dict[str, Any]]:
        """What each of ``trials`` said; skips if the way is not permitted here."""
        task = {"uid": self.uid, "scratch": str(self.scratch)}
        task |= {"without": self.way.without, "before": before, "imports": imports}
        task |= {"trials": trials, "network": network, "room": room}
        variables = os.environ | {"HOME": str(self.home), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
            variables.pop(name, None)
        command = [*self.way.start, sys.executable, str(CHILD), json.dumps(task)]
        done = subprocess.run(command, env=variables, cwd=self.origin, capture_output=True, text=True, timeout=60)
        if done.returncode and done.stderr.startswith(("unshare:", "sh:", "setpriv:")):
            pytest.skip(done.stderr)
        assert done.returncode == 0, done.stderr
        said = [json.loads(line) for line in done.stdout.splitlines()]
        taken = said.pop(0)
        if taken["way"] != self.way.name and self.way.name == "overlay":
            pytest.skip("overlays are not permitted here")
        assert taken["way"] == self.way.name
        assert len(said) == len(trials), done.stdout + done.stderr
        return said


@contextmanager
def users_world(way: Way) -> Iterator[UsersWorld]:
    """A world with its files. It does not lie in the folder of the test run, which only its user may enter."""
    if way.uid not in (None, os.getuid()) and os.getuid() != 0:
        pytest.skip(f"only root becomes user {way.uid}")
    world = UsersWorld(Path(tempfile.mkdtemp(prefix="users-world-", dir="/tmp")), way)
    try:
        (world.origin / "data").mkdir(parents=True)
        (world.home / ".cache" / "torch").mkdir(parents=True)
        world.scratch.mkdir()
        (world.home / ".cache" / "torch" / "weights").write_bytes(b"weights")
        (world.origin / "train.csv").write_text("a,b\n1,2\n")
        (world.origin / "large.bin").write_bytes(b"0" * (2**20 + 1))
        (world.origin / "data" / "part-0").write_text("part")
        (world.home / "notes.txt").write_text("notes")
        for path in (world.root, *world.root.rglob("*")):
            world.give(path)
        yield world
    finally:
        shutil.rmtree(world.root)
