"""Shared memory that a killed trial leaves behind.

Other containers may share the folder (``--ipc=host``, or the containers of a pod), and a pid in a name may be one of
theirs. So what is removed has the trial's mark, which `mark_names` has Python put into the names that it gives in the
trial's processes. The rest is left to those who know what is theirs: Python's resource trackers and PyTorch's shared
memory managers remove what their dead clients leave. A trial's trackers end at once when its other processes are dead,
its managers two seconds later. MPI's is unlinked as soon as every rank has it (`autotune.runtime.mpi`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Collection, Iterable
from pathlib import Path

from autotune.trial import process_tree
from autotune.trial.paths import OWNER, SCRATCH_PREFIX, SHORT, mark

FOLDER = Path("/dev/shm")
KILL_SECONDS = 1.0
TRACKER_SECONDS = 1.0
MANAGER_SECONDS = 2.5
"""PyTorch's manager waits two seconds for new clients before it removes and ends."""


def end(pids: Collection[int]) -> set[int]:
    """Kill processes of a trial; trackers and managers go on, to finish. Returns the killed ones."""
    trackers, managers = set(filter(is_tracker, pids)), set(filter(is_manager, pids))
    killed = set(pids) - trackers - managers
    process_tree.send_signal(signal.SIGKILL, killed)
    _wait(killed, KILL_SECONDS)
    process_tree.send_signal(signal.SIGCONT, trackers | managers)  # a paused trial is
    _wait(trackers, TRACKER_SECONDS)
    return killed


def remove(trial: Path) -> None:
    """Delete what has the mark of the trial in the folder ``trial``, whose processes have ended."""
    own = mark(trial)
    with contextlib.suppress(OSError):
        for entry in os.scandir(FOLDER):
            if entry.name.startswith((f"psm_{own}", f"sem.mp-{own}")):
                with contextlib.suppress(OSError):  # another process was quicker, or it is another user's
                    os.unlink(entry.path)


def remove_abandoned() -> None:
    """Remove scratch folders of this user, and shared memory of their trials, whose process ended without doing it.

    A folder without an owner's file is somebody else's work.
    """
    for root in {found for place in (tempfile.gettempdir(), SHORT) for found in Path(place).glob(f"{SCRATCH_PREFIX}*")}:
        with contextlib.suppress(OSError):
            folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                os.stat(OWNER, dir_fd=folder, follow_symlinks=False)
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if the process lives
                if os.fstat(folder).st_uid == os.geteuid():
                    for trial in root.glob("t*"):
                        remove(trial)
                    shutil.rmtree(root, ignore_errors=True)
            finally:
                os.close(folder)


def mark_names(folder: Path) -> None:
    """Mark all names that Python gives to shared memory from now on, here and in forked children, as those of the trial
    in ``folder``."""
    if not process_tree.LINUX:
        return  # names must be short elsewhere
    with contextlib.suppress(ImportError):  # a Python without POSIX shared memory
        from multiprocessing import process, shared_memory

        prefix = f"/psm_{mark(folder)}"
        vars(shared_memory).update(_SHM_NAME_PREFIX=prefix, _SHM_SAFE_NAME_LENGTH=len(prefix) + 8)
        vars(process.current_process()).setdefault("_config", {})["semprefix"] = f"/mp-{mark(folder)}"


def is_tracker(pid: int) -> bool:
    """Return True if the process is one of Python's resource trackers."""
    return any(word.startswith(b"from multiprocessing.resource_tracker import main") for word in _command_line(pid))


def is_manager(pid: int) -> bool:
    """Return True if the process is one of PyTorch's shared memory managers (sharing strategy ``file_system``)."""
    return _command_line(pid)[0] == b"torch_shm_manager"


def wait_for_managers(pids: Iterable[int]) -> None:
    """Let PyTorch's managers among ``pids`` finish."""
    _wait(set(filter(is_manager, pids)), MANAGER_SECONDS)


def _command_line(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return [b""]


def _wait(pids: Collection[int], seconds: float) -> None:
    """Wait until none of ``pids`` runs, or for so long."""
    give_up = time.monotonic() + seconds
    while any(process_tree.alive(pid) for pid in pids) and time.monotonic() < give_up:
        time.sleep(0.002)
