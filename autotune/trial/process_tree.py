"""Process trees on Linux: tie a child's life to its parent's, find all descendants, end them all.

Nothing is ever found or killed by name. A process that escaped into its own session and was orphaned comes back to
the nearest *subreaper* among its ancestors, and is found there as a child.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import sys
import termios
import time
from collections.abc import Iterable
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
TRIAL_OOM_SCORE = 800
KILL_SECONDS = 5.0
LINUX = sys.platform == "linux"


def _prctl(option: int, value: int) -> None:
    """Best effort: where a kernel or sandbox forbids it, the other safeguards stay."""
    if LINUX:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def die_with_parent(signum: int = signal.SIGKILL) -> None:
    """Ask the kernel for ``signum`` when the parent dies."""
    _prctl(PR_SET_PDEATHSIG, int(signum))


def become_subreaper(active: bool = True) -> None:
    """Inherit orphaned descendants, so that none escapes."""
    _prctl(PR_SET_CHILD_SUBREAPER, int(active))


def lead_group() -> None:
    """Lead a process group of its own, in the caller's session: signals to the group reach the whole trial.

    A session of its own would be a scheduling group of its own (``kernel.sched_autogroup_enabled``). Niceness counts
    only within a group, so the trial would not run as the user's training does.
    """
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)


def leave_terminal() -> None:
    """Give up the terminal, for what is started later too: user code that opens it must not stop its process group."""
    with contextlib.suppress(OSError):
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
        try:
            fcntl.ioctl(terminal, termios.TIOCNOTTY)
        finally:
            os.close(terminal)


def prefer_as_oom_victim() -> None:
    """If memory runs out, the kernel takes the trial, not the tuner."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(TRIAL_OOM_SCORE))


def own_threads() -> int:
    """Number of threads of this process as the kernel counts them; 1 where it cannot be read."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 1


def descendants(root: int) -> set[int]:
    """Pids of all living descendants of ``root``, zombies left out."""
    children: dict[int, list[int]] = {}
    states: dict[int, str] = {}
    for entry in os.listdir("/proc") if LINUX else ():
        if not entry.isdigit():
            continue
        stat = _stat(int(entry))
        if stat is not None:
            states[int(entry)] = stat[0]
            children.setdefault(stat[1], []).append(int(entry))
    found: set[int] = set()
    frontier = [root]
    while frontier:
        for child in children.get(frontier.pop(), ()):
            if child not in found:
                found.add(child)
                frontier.append(child)
    return {pid for pid in found if states.get(pid) != "Z"}


def marked_children(marker: str) -> list[int]:
    """Children of this process whose environment, as they were exec'd, holds ``marker``."""
    found = []
    for pid in descendants(os.getpid()):
        stat = _stat(pid)
        with contextlib.suppress(OSError):
            if stat and stat[1] == os.getpid() and marker.encode() in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
    return found


def _stat(pid: int) -> tuple[str, int] | None:
    """(state, parent pid) of a process; None if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, parent = text.rpartition(")")[2].split()[:2]
    return state, int(parent)


def kill_tree(root: int, *, include_root: bool = True) -> None:
    """SIGKILL ``root`` and all its descendants, and wait until none of them runs.

    Everything is stopped first, so that nothing forks between listing and killing. Ended children stay zombies for
    whoever waits for them.
    """
    targets: set[int] = {root} if include_root else set()
    give_up = time.monotonic() + KILL_SECONDS
    while time.monotonic() < give_up:
        targets = {pid for pid in targets if alive(pid)} | descendants(root)
        if not targets:
            return
        for signum in (signal.SIGSTOP, signal.SIGKILL):
            send_signal(signum, targets)
        time.sleep(0.002)


def send_signal(signum: int, pids: Iterable[int]) -> None:
    """Send ``signum`` to each process that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signum)


def alive(pid: int) -> bool:
    """True while the process exists and is no zombie."""
    if not LINUX:
        return _signalable(pid)
    stat = _stat(pid)
    return stat is not None and stat[0] not in ("Z", "X")


def _signalable(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def reap() -> list[tuple[int, int]]:
    """Collect every ended child of this process without waiting: ``[(pid, wait status)]``."""
    ended: list[tuple[int, int]] = []
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended.append((pid, status))
    return ended
