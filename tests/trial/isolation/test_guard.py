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
from autotune.trial.isolation import guard
inside, outside = map(pathlib.Path, sys.argv[1:])
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
    "os.fork() or open(outside / 'new', 'w'); os.wait(); open(outside / 'new', 'w')",
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


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    (outside / "folder").mkdir(parents=True)
    inside.mkdir()
    (outside / "file").write_text("the user's")
    (inside / "own").write_text("own")
    (inside / "link").symlink_to(outside / "file")
    return inside, outside


def run(code: str, folders: tuple[Path, Path]) -> str:
    """The last line of what the code prints on its way down; empty where it comes to its end."""
    command = [sys.executable, "-c", START + code, *map(str, folders)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    return (done.stderr.strip().splitlines() or [""])[-1]


@pytest.mark.parametrize("code", FORBIDDEN)
def test_a_change_outside_is_stopped_and_its_path_named(code: str, folders: tuple[Path, Path]) -> None:
    said = run(f"guard.forbid_writes(inside)\n{code}", folders)
    assert said.startswith("PermissionError"), said
    assert str(folders[1]) in said
    assert "$TMPDIR" in said
    assert sorted(path.name for path in folders[1].iterdir()) == ["file", "folder"]
    assert (folders[1] / "file").read_text() == "the user's"


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no /dev/shm here")
@pytest.mark.parametrize(
    ("code", "stopped"),
    [
        ("open(f'/dev/shm/{NAME}', 'w'); os.remove(f'/dev/shm/{NAME}')", False),
        ("from multiprocessing.shared_memory import SharedMemory as S; s = S(create=True, size=1); s.unlink()", False),
        ("open(f'/dev/shm/{NAME}/data', 'w')", True),
    ],
)
def test_shared_memory_is_made_but_nobodys_folder_in_it_is_changed(
    code: str, stopped: bool, folders: tuple[Path, Path]
) -> None:
    name = f"autotune-test-{uuid.uuid4().hex}"
    said = run(f"guard.forbid_writes(inside)\nNAME = {name!r}\n{code}", folders)
    assert said.startswith("PermissionError") if stopped else said == ""


@pytest.mark.parametrize("code", PERMITTED)
def test_reading_and_changes_inside_are_not(code: str, folders: tuple[Path, Path]) -> None:
    assert run(f"guard.forbid_writes(inside)\n{code}", folders) == ""


@pytest.mark.parametrize(
    "code",
    [
        "socket.create_connection(('192.0.2.1', 80))",
        "socket.getaddrinfo('example.org', 443)",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 80))",
        "import urllib.request; urllib.request.urlopen('http://192.0.2.1/')",
    ],
)
def test_another_machine_is_not_called(code: str, folders: tuple[Path, Path]) -> None:
    assert "--allow-network" in run(f"guard.forbid_network()\n{code}", folders)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_this_machine_is(host: str, folders: tuple[Path, Path]) -> None:
    code = f"""
family, _, _, _, address = socket.getaddrinfo({host!r}, 0, type=socket.SOCK_STREAM)[0]
try:
    server = socket.create_server(address[:2], family=family)
except OSError:
    sys.exit()  # no such interface here
socket.create_connection(server.getsockname()[:2])
"""
    assert run(f"guard.forbid_network()\n{code}", folders) == ""
