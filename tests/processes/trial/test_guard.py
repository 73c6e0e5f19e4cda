"""The audit hook by itself, in processes of their own, since it cannot be taken back."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
START = """
import os, pathlib, shutil, socket, sys, tempfile
from multiprocessing.shared_memory import SharedMemory
from autotune.trial.isolation import redirected as guard
inside, outside = map(pathlib.Path, sys.argv[1:3])
TOKEN = sys.argv[3]
"""
RUN = """
for code in {codes!r}:
    before, own = os.getcwd(), os.getpid()
    said = "done"
    try:
        exec(code)
    except Exception as error:
        said = f"{{type(error).__name__}} {{error}}"
    if own != os.getpid():
        os._exit(0)  # a child of the code's
    print(said, flush=True)
    os.chdir(before)
"""
FORBIDDEN = [
    "open(outside / 'new', 'w')",
    "open(outside / 'file', 'a')",
    "open(outside / 'file', 'r+b')",
    "(outside / 'file').write_text('x')",
    "os.open(outside / 'new', os.O_CREAT)",
    "os.remove(outside / 'file')",
    "os.rename(outside / 'file', inside / 'file')",
    "os.replace(inside / 'own', outside / 'file')",
    "os.mkdir(outside / 'new')",
    "os.makedirs(outside / 'a' / 'b')",
    "os.rmdir(outside / 'folder')",
    "shutil.rmtree(outside / 'folder')",
    "shutil.copy(inside / 'own', outside / 'new')",
    "shutil.move(outside / 'file', inside / 'moved')",
    "os.symlink('x', outside / 'new')",
    "os.link(inside / 'own', outside / 'new')",
    "os.truncate(outside / 'file', 0)",
    "os.chmod(outside / 'file', 0o600)",
    "os.utime(outside / 'file')",
    "open(inside / 'link', 'w')",
    "os.truncate(inside / 'link', 0)",
    "os.chdir(outside); open('file', 'w')",
    "os.chdir(outside); os.remove('file')",
    "os.remove('file', dir_fd=os.open(outside, os.O_RDONLY))",
    "os.fork() and os.wait(); open(outside / 'new', 'w')",
]
PERMITTED = [
    "open(outside / 'file').read()",
    "open(inside / 'new', 'w'); os.remove(inside / 'new')",
    "os.makedirs(inside / 'a' / 'b'); shutil.rmtree(inside / 'a')",
    "os.makedirs(outside, exist_ok=True)",
    "os.remove(inside / 'link')",
    "open('/dev/null', 'w').write('x')",
    "tempfile.TemporaryFile(dir=inside).write(b'x')",
    "read, write = os.pipe(); os.fdopen(write, 'w').write('x')",
]
CALLS = [
    "socket.create_connection(('192.0.2.1', 80))",
    "socket.getaddrinfo('example.org', 443)",
    "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 80))",
    "import urllib.request; urllib.request.urlopen('http://192.0.2.1/')",
]


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    (outside / "folder").mkdir(parents=True)
    inside.mkdir()
    (outside / "file").write_text("the user's")
    (inside / "own").write_text("own")
    (inside / "link").symlink_to(outside / "file")
    return inside, outside


def run(first: str, codes: list[str], folders: tuple[Path, Path], token: str = "") -> dict[str, str]:
    """What each of ``codes`` ended with, after ``first``."""
    command = [sys.executable, "-c", START + first + RUN.format(codes=codes), *map(str, folders), token]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    return dict(zip(codes, done.stdout.splitlines(), strict=True))


def test_changes_outside_are_stopped_and_their_paths_named(folders: tuple[Path, Path]) -> None:
    for code, said in run("guard.forbid_writes(inside)", FORBIDDEN, folders).items():
        assert said.startswith("PermissionError"), (code, said)
        assert str(folders[1]) in said, code
        assert "$TMPDIR" in said, code
    assert sorted(path.name for path in folders[1].iterdir()) == ["file", "folder"]
    assert (folders[1] / "file").read_text() == "the user's"


def test_reading_and_changes_inside_are_not(folders: tuple[Path, Path]) -> None:
    assert set(run("guard.forbid_writes(inside)", PERMITTED, folders).values()) == {"done"}


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no /dev/shm here")
def test_shared_memory_is_made_but_nobodys_is_changed(folders: tuple[Path, Path]) -> None:
    token = f"autotune-test-{uuid.uuid4().hex}"
    users = Path("/dev/shm", f"{token}-users")
    users.mkdir()
    own = ["open(f'/dev/shm/{TOKEN}', 'w'); os.remove(f'/dev/shm/{TOKEN}')"]
    own += ["memory = SharedMemory(create=True, size=1); memory.unlink()"]
    others = ["open(f'/dev/shm/{TOKEN}-users/data', 'w')", "os.rmdir(f'/dev/shm/{TOKEN}-users')"]
    try:
        said = run("guard.forbid_writes(inside)", [*own, *others], folders, token)
    finally:
        users.rmdir()
    assert [said[code] for code in own] == ["done", "done"]
    assert all(said[code].startswith("PermissionError") for code in others)


def test_other_machines_are_not_called(folders: tuple[Path, Path]) -> None:
    assert all("--allow-network" in said for said in run("guard.forbid_network()", CALLS, folders).values())
