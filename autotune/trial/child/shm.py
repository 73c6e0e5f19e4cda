"""Shared memory that a killed trial leaves behind.

Other containers may share the folder (``--ipc=host``, or the containers of a pod), and a pid in a name may be one of
theirs. So only what is proven to be a trial's is removed:

* names with the trial's mark, which `mark_names` has Python put into the names that it gives in the trial's processes;
* names that MPICH makes from the name of the trial's MPI job, which is that mark;
* files that a process of the trial had mapped when it was ended, and whose name has its pid.

The rest is left to those who know what is theirs: Python's resource trackers and PyTorch's shared memory managers
remove what their dead clients leave. A trial's trackers end at once when its other processes are dead, its managers two
seconds later.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from autotune.trial import process_tree
from autotune.trial.paths import OWNER, SCRATCH_PREFIX, SHORT, mark, mpi_segments

FOLDER = Path("/dev/shm")
KILL_SECONDS = 1.0
TRACKER_SECONDS = 1.0
MANAGER_SECONDS = 2.5
"""PyTorch's manager waits two seconds for new clients before it removes and ends."""
_BY_PID = re.compile(r"(?:torch_|__KMP_REGISTERED_LIB_)([0-9]+)_")
Segment = tuple[str, int]
"""Name and inode."""


@dataclass(frozen=True)
class Segments:
    """The shared memory of one trial.

    Args:
        folder: the trial's own, which no other trial has.
    """

    folder: Path
    held: set[Segment] = field(default_factory=set)
    """What its processes held when they were ended."""

    def end(self, pids: Collection[int]) -> set[int]:
        """Kill processes of the trial; trackers and managers go on, to finish. Returns the killed ones."""
        trackers, managers = set(filter(is_tracker, pids)), set(filter(is_manager, pids))
        killed = set(pids) - trackers - managers
        process_tree.send_signal(signal.SIGSTOP, killed)
        self.held.update(_own(killed))
        process_tree.send_signal(signal.SIGKILL, killed)
        _wait(killed, KILL_SECONDS)
        process_tree.send_signal(signal.SIGCONT, trackers | managers)
        _wait(trackers, TRACKER_SECONDS)
        return killed

    def remove(self) -> None:
        """Delete what is proven to be the trial's, whose processes have ended."""
        own = mark(self.folder)
        marks = f"psm_{own}", f"sem.mp-{own}", *mpi_segments(self.folder)
        with contextlib.suppress(OSError):
            for entry in os.scandir(FOLDER):
                with contextlib.suppress(OSError):  # another process was quicker, or it is another user's
                    if entry.name.startswith(marks) or (entry.name, entry.inode()) in self.held:
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
                        Segments(trial).remove()
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


def _own(pids: Collection[int]) -> set[Segment]:
    """Return what ``pids`` have mapped and made. A mapping alone proves nothing: others' memory can be attached."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
                _, _, name = line.partition(f"{FOLDER}/")
                if (by_pid := _BY_PID.match(name)) and int(by_pid[1]) in pids:
                    found.add((name, int(line.split(None, 5)[4])))
    return found


def _wait(pids: Collection[int], seconds: float) -> None:
    """Wait until none of ``pids`` runs, or for so long."""
    give_up = time.monotonic() + seconds
    while any(process_tree.alive(pid) for pid in pids) and time.monotonic() < give_up:
        time.sleep(0.002)
