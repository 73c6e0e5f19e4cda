"""Real processes: whatever a script does, its user's home, working folder and temporary folders stay as they were.

Each promise is held once for each way to isolate trials.
"""

import os
import socket
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.processes.trial.users_world import WAYS, UsersWorld, tree_hash, users_world

OVERLAYS = ("root", "user namespace")
WRITES = {
    "working folder": "open('model.pt', 'w').write('x')",
    "folder in it": "os.makedirs('runs/1'); open('runs/1/log', 'w').write('x')",
    "parent": "open('../model.pt', 'w').write('x')",
    "home": "open(os.path.expanduser('~/out'), 'w').write('x')",
    "path under home": "open(REAL_HOME + '/out', 'w').write('x')",
    "cache": "os.makedirs(os.path.expanduser('~/.cache/torch/hub')); open(os.path.expanduser('~/.cache/x'), 'w')",
    "file in a cache": "open(os.path.expanduser('~/.cache/torch/weights'), 'ab').write(b'x')",
    "/tmp": "open(f'/tmp/{TOKEN}', 'w').write('x')",
    "/var/tmp": "open(f'/var/tmp/{TOKEN}', 'w').write('x')",
    "/dev/shm": "open(f'/dev/shm/{TOKEN}', 'w').write('x')",
    "overwrite": "open('train.csv', 'w').write('lost')",
    "append": "open('train.csv', 'a').write('lost')",
    "truncate": "os.truncate('train.csv', 0)",
    "overwrite large": "open('large.bin', 'r+b').write(b'lost')",
    "rename": "os.rename('train.csv', 'old.csv')",
    "rename large": "os.rename('large.bin', 'old.bin')",
    "delete": "os.remove('train.csv'); os.remove('large.bin')",
    "delete a folder": "shutil.rmtree('data'); os.mkdir('data'); assert os.listdir('data') == []",
    "mode": "os.chmod('train.csv', 0o600)",
    "mode of large": "os.chmod('large.bin', 0o600)",
    "link": "os.symlink('train.csv', 'link'); os.link('train.csv', 'hard')",
    "program": "subprocess.run(['sh', '-c', f'echo x > out; rm train.csv; echo x > {REAL_HOME}/out'])",
    "mmap": "f = open('train.csv', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[:1] = b'X'; m.flush()",
    "mmap of large": "f = open('large.bin', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[:1] = b'X'; m.flush()",
    "library in C": "ctypes.CDLL(None).creat((REAL_HOME + '/out').encode(), 0o644)",
}
PERMITTED = {"working folder", "folder in it", "home", "cache", "overwrite", "append", "rename", "delete", "program"}
"""Where no system call undoes them, these still succeed: what they change is a link or a copy in scratch."""
UNSEEN = {"program", "library in C"}
"""What an audit hook does not see."""
IMPORTS = "import ctypes, mmap, os, shutil, subprocess\n"
only_overlays = pytest.mark.parametrize("world", OVERLAYS, indirect=True)
only_the_audit_hook = pytest.mark.parametrize("world", ["neither namespaces nor Landlock"], indirect=True)


@pytest.fixture(params=WAYS)
def world(request: pytest.FixtureRequest) -> Iterator[UsersWorld]:
    with users_world(WAYS[request.param]) as made:
        yield made


def test_the_best_way_that_is_permitted_is_taken_and_its_gaps_are_named(world: UsersWorld) -> None:
    (found,) = world.run("said[:] = isolation.way, isolation.gaps")
    way, gaps = found["said"]
    assert way == world.way.name
    if way == "overlay":
        assert gaps == []
        return
    words = ["a library in C writes by an absolute path"] if world.way.without else []
    words += ["can reach the network without a proxy"]
    assert all(word in gap for word, gap in zip(words, gaps, strict=True))
    assert not any(str(world.root) in gap for gap in gaps)


def test_nothing_of_what_a_script_writes_lands(world: UsersWorld) -> None:
    token = f"autotune-test-{uuid.uuid4().hex}"
    start = f"{IMPORTS}TOKEN = {token!r}; REAL_HOME = {str(world.home)!r}\n"
    before, mounts = tree_hash(world.home), Path("/proc/self/mountinfo").read_text()
    writes = {name: code for name, code in WRITES.items() if not (world.way.without and name in UNSEEN)}
    try:
        said = world.run(*(start + code for code in writes.values()))
    finally:
        (Path("/dev/shm") / token).unlink(missing_ok=True)  # a fallback shares it
    assert tree_hash(world.home) == before
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert not [path for path in ("/tmp", "/var/tmp") if (Path(path) / token).exists()]
    failed = {name: each["error"][:2] for name, each in zip(writes, said, strict=True) if each["error"]}
    if world.way.name == "overlay":
        assert failed == {}
    else:
        assert not PERMITTED & failed.keys(), failed
        assert {kind for kind, _ in failed.values()} <= {"PermissionError"}, failed


@pytest.mark.torch
def test_a_users_checkpoint_is_not_overwritten_by_the_writer_in_c(world: UsersWorld) -> None:
    """`torch.save` opens a file by its name in C++. A large file of the working folder is a link in a fallback."""
    before = tree_hash(world.home)
    save = "torch.save([1.0], {!r}); said.append(torch.load({!r}))"
    names = ("model.pt", "large.bin", str(world.home / "project" / "last.pt"))
    trials = [f"import torch; {save.format(name, name)}" for name in names]
    found = world.run(*trials, imports=["torch", "torch._weights_only_unpickler"])
    assert tree_hash(world.home) == before
    assert found[0]["said"] == [[1.0]]
    for each in found[1:]:
        if world.way.name == "overlay":
            assert each["said"] == [[1.0]], each["error"]
        else:
            assert each["error"][0] == "PermissionError"
            assert "a trial may not write here" in each["error"][1]


def test_what_is_written_before_the_fork_is_seen_after_it_and_what_a_trial_writes_only_by_itself(world) -> None:
    before = "import os\nopen('early', 'w').write('e'); os.mkdir('folder'); os.remove('train.csv')"
    look = "import os; said[:] = sorted(os.listdir()), os.listdir('folder')"
    first, second = world.run(
        f"{look}; open('folder/late', 'w'); os.remove('early'); said.append(os.listdir('folder'))", look, before=before
    )
    assert first["error"] is second["error"] is None, (first, second)
    assert first["said"] == [["data", "early", "folder", "large.bin"], [], ["late"]]
    assert second["said"] == first["said"][:2]


def test_a_file_that_was_open_before_the_fork_is_read_from_the_same_position_by_each_trial(world: UsersWorld) -> None:
    before = "rows = open('train.csv', 'rb', buffering=0); rows.read(2); log = open('log', 'a')"
    read = "said.append(rows.read(3).decode()); log.write('x'); log.flush(); said.append(open('log').read())"
    assert [each["said"] for each in world.run(read, read, before=before)] == [["b\n1", "x"]] * 2


def test_other_machines_cannot_be_reached_but_this_one_can(world: UsersWorld) -> None:
    code = """
import os, socket, tempfile
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname()); client.sendall(b"tcp")
said.append(server.accept()[0].recv(9).decode())
os.chdir(tempfile.mkdtemp())  # a socket's path must be short
local = socket.socket(socket.AF_UNIX); local.bind("s"); local.listen()
other = socket.socket(socket.AF_UNIX); other.connect("s"); other.sendall(b"unix")
said.append(local.accept()[0].recv(9).decode())
said.append(os.environ.get("https_proxy"))
socket.create_connection(("192.0.2.1", 80), timeout=5)
"""
    (found,) = world.run(code)
    redirected = world.way.name == "redirected"
    assert found["said"] == ["tcp", "unix", "http://127.0.0.1:9" if redirected else os.environ.get("https_proxy")]
    kind, text, _ = found["error"]
    assert (kind, "--allow-network" in text) == (("PermissionError", True) if redirected else ("OSError", False))


def test_the_pipes_of_cudas_server_for_several_processes_are_the_real_ones(
    world: UsersWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a private copy nobody holds the other end: CUDA would not start."""
    folder = world.home / "mps"
    folder.mkdir()
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(folder))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "control"))
        server.listen()
        (folder / "control").chmod(0o777)
        call = f"import socket; socket.socket(socket.AF_UNIX).connect({str(folder / 'control')!r})"
        (found,) = world.run(call)
    assert found["error"] is None


def test_the_network_stays_where_it_is_permitted(world: UsersWorld) -> None:
    with socket.create_server(("127.0.0.1", 0)) as outside:
        call = f"import os, socket; socket.create_connection({outside.getsockname()!r}, timeout=5)"
        (found,) = world.run(f"{call}; said.append(os.environ.get('HF_HUB_OFFLINE'))", network=True)
    assert found["error"] is None
    assert found["said"] == [None]


@only_overlays
def test_trials_have_ports_of_their_own(world: UsersWorld) -> None:
    bind = "import socket; s = socket.create_server(('127.0.0.1', 29500)); s.listen()"
    assert [each["error"] for each in world.run(bind, before=bind)] == [None]


@only_overlays
def test_a_trial_that_writes_too_much_ends(world: UsersWorld) -> None:
    (found,) = world.run("open('big', 'wb').write(bytes(20 * 2**20))", room=10 * 2**20)
    assert found["error"][:2] == ["OSError", "[Errno 28] No space left on device"]


@only_overlays
def test_nothing_but_scratch_is_left(world: UsersWorld) -> None:
    world.run("open('big', 'wb').write(bytes(2**20))", before="open('early', 'w').write('x')")
    assert [path for path in world.scratch.rglob("*") if not path.is_dir()] == []


@only_overlays
def test_a_process_with_threads_is_not_moved(world: UsersWorld) -> None:
    (world.scratch / "again").mkdir()
    world.give(world.scratch / "again")
    code = f"""
import threading
from pathlib import Path
from autotune.trial.isolation.isolate import isolate
threading.Thread(target=threading.Event().wait, daemon=True).start()
found = isolate(Path({str(world.scratch / "again")!r}))
said.append(found.way)
"""
    (found,) = world.run(code)
    assert found["said"] == ["redirected"], found


@only_overlays
def test_in_a_container_whose_root_is_an_overlay_trials_see_as_much(world: UsersWorld) -> None:
    """The kernel stacks two overlays at most. The first `isolate` stands for the container."""
    inner = world.scratch / "inner"
    inner.mkdir()
    world.give(inner)
    before = f"""
import os
from pathlib import Path
from autotune.trial.isolation import isolate as isolating
scratch = Path({str(inner)!r})
isolation = isolating.isolate(scratch)
assert isolation.way == "overlay"
open("early", "w").write("e")
os.remove("train.csv")
"""
    look = "said[:] = sorted(os.listdir()); open('early', 'a').write('x'); os.remove('large.bin')"
    for found in world.run(look, look, before=before):
        assert found["error"] is None
        assert found["said"] == ["data", "early", "large.bin"]


MOUNTS = """
mkdir -p "$HOME/remote" "$HOME/../others/inner" && chmod 700 "$HOME/../others" &&
mount -t tmpfs -o mode=777 none "$HOME/remote" && mount -t tmpfs none "$HOME/../others/inner" && exec "$@"
"""


@pytest.mark.root
@pytest.mark.parametrize("name", OVERLAYS)
def test_mounts_inside_a_home_are_covered_too(name: str) -> None:
    """In a user namespace, the folder that holds one can only be read; and nobody can look into the others' folder."""
    way = replace(WAYS[name], start=("unshare", "--mount", "sh", "-c", MOUNTS, "sh"))
    paths = ("~/remote/new", "~/project/new", "~/.cache/new", "~/new")
    write = "import os; open(os.path.expanduser({!r}), 'w').write('x')"
    look = "import os; said[:] = os.listdir(os.path.expanduser('~/remote'))"
    with users_world(way) as world:
        *written, seen = world.run(*map(write.format, paths), look)
        assert not (world.home / "new").exists()
    refused = [path for path, each in zip(paths, written, strict=True) if each["error"]]
    assert refused == ([] if name == "root" else ["~/new"])
    assert seen["said"] == []


def test_what_the_users_caches_hold_is_found(world: UsersWorld) -> None:
    code = """
import os
said[:] = [open(os.path.expanduser("~/.cache/torch/weights")).read(), open("data/part-0").read()]
cache = os.environ.get("TORCH_HOME") or os.path.expanduser("~/.cache/torch")
said.append(open(cache + "/weights").read())
"""
    assert [each["said"] for each in world.run(code)] == [["weights", "part", "weights"]]


# The audit hook by itself ---------------------------------------------------------------------------------------------

HOOKED = """
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
PASSES = [
    "open(outside / 'notes.txt').read()",
    "open(inside / 'new', 'w'); os.remove(inside / 'new')",
    "os.makedirs(inside / 'a' / 'b'); shutil.rmtree(inside / 'a')",
    "os.makedirs(outside, exist_ok=True)",
    "os.remove(inside / 'link')",
    "open('/dev/null', 'w').write('x')",
    "tempfile.TemporaryFile(dir=inside).write(b'x')",
    "read, write = os.pipe(); os.fdopen(write, 'w').write('x')",
    "open(f'/dev/shm/{TOKEN}', 'w'); os.remove(f'/dev/shm/{TOKEN}')",
    "memory = SharedMemory(create=True, size=1); memory.unlink()",
]
CALLS = [
    "socket.create_connection(('192.0.2.1', 80))",
    "socket.getaddrinfo('example.org', 443)",
    "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 80))",
    "urllib.request.build_opener(urllib.request.ProxyHandler({})).open('http://192.0.2.1/')",
]
OTHERS = ["open(f'/dev/shm/{TOKEN}-users/data', 'w')", "os.rmdir(f'/dev/shm/{TOKEN}-users')"]


@only_the_audit_hook
def test_changes_outside_and_calls_are_stopped_and_named_and_all_else_passes(world: UsersWorld) -> None:
    before, token = tree_hash(world.home), f"autotune-test-{uuid.uuid4().hex}"
    start, codes = HOOKED.format(home=str(world.home), token=token), [*FORBIDDEN, *PASSES, *CALLS, *OTHERS]
    users = Path("/dev/shm", f"{token}-users")
    users.mkdir()
    try:
        errors = [each["error"] for each in world.run(*(start + code for code in codes))]
    finally:
        users.rmdir()
    found = dict(zip(codes, errors, strict=True))
    for code in FORBIDDEN:
        assert found[code][0] == "PermissionError", (code, found[code])
        assert all(words in found[code][1] for words in (str(world.home), "$TMPDIR")), (code, found[code])
    assert {code: found[code] for code in PASSES} == dict.fromkeys(PASSES)
    assert all("--allow-network" in str(found[code]) for code in CALLS)
    assert [found[code][0] for code in OTHERS] == ["PermissionError"] * 2
    assert tree_hash(world.home) == before
