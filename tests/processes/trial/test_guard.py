"""The audit hook by itself: with neither namespaces nor Landlock, it alone stops what Python would change."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.trial.users_world import WAYS, UsersWorld, tree_hash, users_world

IMPORTS = """
import os, pathlib, shutil, socket, tempfile, urllib.request
from multiprocessing.shared_memory import SharedMemory
inside, outside = pathlib.Path.cwd(), pathlib.Path({home!r})
TOKEN = {token!r}
(inside / "own").write_text("own")
(inside / "link").symlink_to(outside / "notes.txt")
"""
FORBIDDEN = [
    "open(outside / 'notes.txt', 'r+b')",
    "os.rename(outside / 'notes.txt', inside / 'file')",
    "os.replace(inside / 'own', outside / 'notes.txt')",
    "os.makedirs(outside / 'a' / 'b')",
    "shutil.move(outside / 'notes.txt', inside / 'moved')",
    "os.symlink('x', outside / 'new')",
    "os.link(inside / 'own', outside / 'new')",
    "os.truncate(outside / 'notes.txt', 0)",
    "os.utime(outside / 'notes.txt')",
    "open(inside / 'link', 'w')",
    "os.truncate(inside / 'link', 0)",
    "os.chdir(outside); open('notes.txt', 'w')",
    "os.chdir(outside); os.remove('notes.txt')",
    "os.remove('notes.txt', dir_fd=os.open(outside, os.O_RDONLY))",
]
PERMITTED = [
    "open(outside / 'notes.txt').read()",
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
    "urllib.request.build_opener(urllib.request.ProxyHandler({})).open('http://192.0.2.1/')",
]


@pytest.fixture
def world() -> Iterator[UsersWorld]:
    with users_world(WAYS["neither namespaces nor Landlock"]) as made:
        yield made


def errors(world: UsersWorld, codes: list[str], token: str = "") -> dict[str, tuple[str, str] | None]:
    """Return what each of ``codes`` ended with, class and text."""
    start = IMPORTS.format(home=str(world.home), token=token)
    found = [each["error"] for each in world.run(*(start + code for code in codes))]
    return {code: error and (error[0], error[1]) for code, error in zip(codes, found, strict=True)}


def test_changes_outside_are_stopped_and_their_paths_named(world: UsersWorld) -> None:
    before = tree_hash(world.home)
    for code, error in errors(world, FORBIDDEN).items():
        assert error is not None, code
        assert error[0] == "PermissionError", (code, error)
        assert str(world.home) in error[1], code
        assert "$TMPDIR" in error[1], code
    assert tree_hash(world.home) == before


def test_reading_and_changes_inside_are_not(world: UsersWorld) -> None:
    assert errors(world, PERMITTED) == dict.fromkeys(PERMITTED)


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no /dev/shm here")
def test_shared_memory_is_made_but_nobodys_is_changed(world: UsersWorld) -> None:
    token = f"autotune-test-{uuid.uuid4().hex}"
    users = Path("/dev/shm", f"{token}-users")
    users.mkdir()
    own = ["open(f'/dev/shm/{TOKEN}', 'w'); os.remove(f'/dev/shm/{TOKEN}')"]
    own += ["memory = SharedMemory(create=True, size=1); memory.unlink()"]
    others = ["open(f'/dev/shm/{TOKEN}-users/data', 'w')", "os.rmdir(f'/dev/shm/{TOKEN}-users')"]
    try:
        found = errors(world, [*own, *others], token)
    finally:
        users.rmdir()
    assert [found[code] for code in own] == [None, None]
    assert [(found[code] or ("",))[0] for code in others] == ["PermissionError"] * 2


def test_other_machines_are_not_called(world: UsersWorld) -> None:
    assert all("--allow-network" in str(error) for error in errors(world, CALLS).values())
