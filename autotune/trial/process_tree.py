"""Process trees: tie a child's life to its parent's, find all descendants, end them all.

Nothing is ever found or killed by name. A process that escaped into its own session and was orphaned comes back to
the nearest *subreaper* among its ancestors, and is found there as a child.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import sys
import termios
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

from autotune import linux

BOOT = "import sys; sys.path[0] = sys.argv[1]; from autotune.trial.child.fork_server import main; main(sys.argv[2:])"
"""Starts in any working folder without adding that folder to the module path."""
ROOT = str(Path(__file__).resolve().parents[2])
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
TRIAL_OOM_SCORE = 800
KILL_SECONDS = 5.0
NVML_THREAD = re.compile(r"cuda\d{8,}")
"""The name of the thread that NVML starts when it first counts GPUs, without any CUDA context."""
LINUX = sys.platform == "linux"
PROCESSES = Path("/proc")
LISTS_CHILDREN = Path("/proc/thread-self/children").exists()
"""True if the kernel lists a process's children: a walk down takes 0.1 ms. Else all processes are looked through."""


def child_command(*arguments: str) -> list[str]:
    """Return the command line that calls ``main`` of `autotune.trial.child.fork_server`."""
    return [sys.executable, "-c", BOOT, ROOT, *arguments]


def _prctl(option: int, value: int) -> None:
    """Call prctl as a best effort: if a kernel or sandbox forbids it, the other safeguards stay."""
    with contextlib.suppress(OSError):
        linux.call("prctl", option, value, 0, 0, 0)


def die_with_parent(signum: int = signal.SIGKILL) -> None:
    """Ask the kernel for ``signum`` when the parent dies."""
    _prctl(PR_SET_PDEATHSIG, int(signum))


def become_subreaper() -> None:
    """Inherit orphaned descendants, so that none escapes."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


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
    """Have the kernel take the trial, not the tuner, if memory runs out."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(TRIAL_OOM_SCORE))


def own_threads() -> int:
    """Return the number of threads of this process as the kernel counts them, but for NVML's: a fork without it asks
    NVML, and starts CUDA, as any process does (seen with driver 580)."""
    return sum(not _is_nvmls(thread.id) for thread in psutil.Process().threads())


def _is_nvmls(thread: int) -> bool:
    with contextlib.suppress(OSError):
        return NVML_THREAD.fullmatch(Path(f"/proc/self/task/{thread}/comm").read_text().strip()) is not None
    return False


def tree(root: int) -> list[int]:
    """Return the pids of ``root`` and of all its descendants, zombies too."""
    found = [root]
    if not LISTS_CHILDREN:
        with contextlib.suppress(psutil.Error):
            found += [child.pid for child in psutil.Process(root).children(recursive=True)]
        return found
    known = {root}
    for pid in found:  # grows on the way
        new = [child for child in _children(PROCESSES / str(pid)) if child not in known]
        known.update(new)
        found += new
    return found


def _children(process: Path) -> list[int]:
    with contextlib.suppress(OSError):  # it has ended
        lists = [(task / "children").read_text("ascii") for task in (process / "task").iterdir()]
        return [int(pid) for listed in lists for pid in listed.split()]
    return []


def descendants(root: int) -> set[int]:
    """Return the pids of all living descendants of ``root``, zombies left out."""
    return set(filter(alive, tree(root)[1:]))


def kill_tree(root: int, *, include_root: bool = True) -> None:
    """Kill ``root`` and all its descendants by SIGKILL, and wait until none of them runs.

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
    """Return True while the process exists and is no zombie."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return False


def reap() -> list[tuple[int, int]]:
    """Collect every ended child of this process without waiting: ``[(pid, wait status)]``."""
    ended: list[tuple[int, int]] = []
    with contextlib.suppress(ChildProcessError):
        while (child := os.waitpid(-1, os.WNOHANG))[0]:
            ended.append(child)
    return ended
