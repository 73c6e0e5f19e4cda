"""Leftovers in shared memory: what is proven to be a trial's goes, all else stays. In a folder of the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from autotune.trial import process_tree
from autotune.trial.child import shm
from autotune.trial.paths import mpi_segments

ROOT = Path(__file__).resolve().parents[3]
TRIAL = Path("/tmp/autotune-x_1y/t1")
MARK = "autotune-x_1y-t1."
HOLDER = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
for word in sys.argv[1:]:
    how, _, name = word.partition(":")
    name = name.replace("OWN", str(os.getpid()))
    file = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(file, 4096)
    if how == "map":
        libc.mmap(None, 4096, 1, 1, file, 0)
    os.close(file)
print("ready", flush=True)
sys.stdin.read()
"""
"""Makes each file of its arguments, and has it mapped from then on, or not. (Python's own ``mmap`` would keep a
descriptor.)"""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in memory, in the place of ``/dev/shm``."""
    if not shm.FOLDER.is_dir():
        pytest.skip("no /dev/shm")
    with tempfile.TemporaryDirectory(dir=shm.FOLDER) as name:
        monkeypatch.setattr(shm, "FOLDER", Path(name))
        yield Path(name)


@pytest.fixture
def holder(folder: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a process that holds files; ``map:torch_OWN_1_0`` is a mapped one whose name has its pid."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        process = python("-S", "-c", HOLDER, *words, cwd=folder)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def python(*arguments: str, cwd: Path = ROOT, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """A Python process that has said its first line."""
    process = subprocess.Popen(
        [*before, sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout.readline() == "ready\n"
    return process


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_bytes(b"\0" * 4096)


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


MARKED = ["psm_1a2b3c4d", "sem.mp-k3x", "psm_autotune-x_1y-t10.1a2b", "psm_autotune-other-t1.1a2b", MARK]
HELD = [f"torch_{os.getpid()}_1_0", "torch_1_2", "mpich_shm_x", "__KMP_REGISTERED_LIB_7_0", "nccl-AbC"]


@pytest.mark.parametrize(
    ("own", "others"),
    [
        ([f"psm_{MARK}1a2b3c4d", f"sem.mp-{MARK}-k3_x"], MARKED),
        (mpi_segments(TRIAL), mpi_segments(TRIAL.with_name("t99"))),
        ([], HELD),
    ],
    ids=["the trial's mark", "MPI was killed while it started", "a pid in a name may be another container's"],
)
def test_what_nobody_holds_is_removed_by_its_name(folder: Path, own: Sequence[str], others: Sequence[str]) -> None:
    make(folder, *own, *others)
    shm.Segments(TRIAL).remove()
    assert left(folder) == set(others)


def test_what_ended_processes_held_and_made_is_removed(
    folder: Path, holder: Callable[..., subprocess.Popen[str]]
) -> None:
    ours = ("map:torch_OWN_12_1", "map:__KMP_REGISTERED_LIB_OWN_0")
    process = holder(*ours, "close:torch_OWN_12_2", "map:torch_1_12_3", "map:my_data")
    segments = shm.Segments(TRIAL)
    assert segments.end({process.pid}) == {process.pid}
    assert not process_tree.alive(process.pid)
    segments.remove()
    assert left(folder) == {f"torch_{process.pid}_12_2", "torch_1_12_3", "my_data"}


def test_a_new_file_of_the_same_name_is_another(folder: Path, holder: Callable[..., subprocess.Popen[str]]) -> None:
    process = holder("map:torch_OWN_12_0")
    segments = shm.Segments(TRIAL)
    segments.end({process.pid})
    kept = folder / f"torch_{process.pid}_12_0"
    make(folder, "other")
    (folder / "other").rename(kept)
    segments.remove()
    assert left(folder) == {kept.name}


TRACKED = """
import os, sys
from multiprocessing import resource_tracker, shared_memory
from autotune.trial.child import shm
block = shared_memory.SharedMemory(create=True, size=16, name=sys.argv[1])
pid = resource_tracker._resource_tracker._pid
for _ in range(100_000):
    if shm.is_tracker(pid):
        break  # until then it is a fork of this process
    os.sched_yield()
print("ready", flush=True)
print(pid, flush=True)
sys.stdin.read()
"""


def test_pythons_resource_tracker_outlives_the_trial_and_removes_the_rest() -> None:
    name = f"psm_test_{os.getpid()}"
    process = python("-c", TRACKED, name)
    tracker = int(process.stdout.readline())
    assert shm.is_tracker(tracker)
    assert (shm.FOLDER / name).exists()
    assert shm.Segments(TRIAL).end({process.pid, tracker}) == {process.pid}
    process.communicate()
    assert not process_tree.alive(tracker)
    assert not (shm.FOLDER / name).exists()


def test_pytorchs_manager_outlives_the_trial_too() -> None:
    sleeper = "import sys; print('ready', flush=True); sys.stdin.read()"
    manager = python("-c", sleeper, before=("bash", "-c", 'exec -a torch_shm_manager "$@"', "bash"))
    other = python("-c", sleeper, "torch_shm_manager", "multiprocessing.resource_tracker")
    assert [shm.is_manager(process.pid) for process in (manager, other)] == [True, False]
    assert not shm.is_tracker(other.pid)
    assert shm.Segments(TRIAL).end({manager.pid, other.pid}) == {other.pid}
    assert process_tree.alive(manager.pid)
    for process in (manager, other):
        process.communicate()
    assert not shm.is_manager(manager.pid)
