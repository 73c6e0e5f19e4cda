"""The server that starts trials: imports torch and the user's module once, then forks one leader per trial.

Forking is safe only while this process has one thread and no CUDA context, so that is checked before every fork;
where it does not hold, trials start as fresh processes instead and say so. The zygote is also the guard: it is the
subreaper of everything below it and ends all of it when the tuner goes away, however that happens.

Requests: load, start, kill, exit. Answers: loaded, started, exited.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.trial import process_tree
from autotune.trial.child import leader, shm
from autotune.trial.child_command import child_command
from autotune.trial.unix_connection import Channel

if TYPE_CHECKING:
    from autotune.trial.child.loaded_task import Task

CLEAN_SECONDS = 2.0


@dataclass(frozen=True)
class Running:
    """One living trial."""

    folder: Path
    memory: shm.Segments


class Zygote:
    """State of the server between requests."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.task: Task | None = None
        self.task_path = ""
        self.seed = 0
        self.scratch = Path()
        self.running: dict[int, Running] = {}
        self.fresh_reason = ""
        self.spared: frozenset[int] = frozenset()

    def load(self, request: dict[str, Any]) -> None:
        """Import torch and the user's module, build the dataset, and say whether forking is safe."""
        self.task_path, self.seed, self.scratch = request["task"], request["seed"], Path(request["scratch"])
        started = time.monotonic()
        error = None
        try:
            from autotune.trial.child import loaded_task

            self.task = loaded_task.load(Path(self.task_path))
            self.task.build_dataset(self.seed)
        except BaseException as failure:
            from autotune.trial.user_errors import describe

            error = describe(failure)
        # What the user's module started on import belongs to it, as in training: it is not a leftover of a trial.
        self.spared = frozenset(process_tree.descendants(os.getpid()))
        self.fresh_reason = unsafe_to_fork()
        seconds = time.monotonic() - started
        self.channel.send({"answer": "loaded", "error": error, "seconds": seconds, "fresh": self.fresh_reason})

    def start(self, request: dict[str, Any], fd: int) -> None:
        """Start one trial; its leader talks to the tuner over descriptor ``fd``."""
        self.fresh_reason = self.fresh_reason or unsafe_to_fork()
        folder = Path(request["folder"])
        pid = self._spawn(request, fd) if self.fresh_reason else self._fork(request, fd)
        os.close(fd)
        self.running[pid] = Running(folder, shm.Segments(folder))
        self.channel.send({"answer": "started", "pid": pid, "fresh": self.fresh_reason})

    def _fork(self, request: dict[str, Any], fd: int) -> int:
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            self.channel.close()
            signal.set_wakeup_fd(-1)
            for signum in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(signum, signal.SIG_DFL)
            code = leader.lead(request, Channel.from_fd(fd), self.task)
        finally:
            os._exit(code)

    def _spawn(self, request: dict[str, Any], fd: int) -> int:
        whole = request | {"task": self.task_path, "seed": self.seed}
        command = child_command("leader", str(fd), json.dumps(whole))
        return subprocess.Popen(command, pass_fds=(fd,), stdin=subprocess.DEVNULL).pid

    def collect(self) -> None:
        """Reap ended children. After a leader's end nothing of its trial stays."""
        for pid, status in process_tree.reap():
            trial = self.running.pop(pid, None)
            if trial is None:
                continue
            orphans = self._orphans()
            leftovers = trial.memory.end(orphans)
            for orphan in leftovers:
                process_tree.kill_tree(orphan)
            trial.memory.remove()
            if not any(map(shm.is_manager, orphans)):  # their sockets are in there
                shutil.rmtree(trial.folder, ignore_errors=True)
            code = os.waitstatus_to_exitcode(status)
            self.channel.send({"answer": "exited", "pid": pid, "code": code, "leftovers": len(leftovers)})

    def _orphans(self) -> set[int]:
        """Processes below the zygote that belong to no running trial."""
        owned = set(self.running)
        for pid in self.running:
            owned |= process_tree.descendants(pid)
        return process_tree.descendants(os.getpid()) - owned - self.spared

    def serve(self) -> None:
        """Answer requests until the tuner says exit or goes away."""
        wakeup, write_end = os.pipe()
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            ready, _, _ = select.select([self.channel.fileno(), wakeup], [], [])
            if wakeup in ready:
                os.read(wakeup, 4096)
                self.collect()
            if self.channel.fileno() in ready:
                message, fds = self.channel.receive()
                if message is None or message["request"] == "exit":
                    return
                self._answer(message, fds)

    def _answer(self, message: dict[str, Any], fds: list[int]) -> None:
        if message["request"] == "load":
            self.load(message)
        elif message["request"] == "start":
            self.start(message, fds[0])
        elif message["request"] == "kill" and message["pid"] in self.running:
            self.running[message["pid"]].memory.end(process_tree.descendants(message["pid"]) | {message["pid"]})
            process_tree.kill_tree(message["pid"])

    def shut_down(self) -> None:
        """Leave nothing behind: processes, shared memory, files."""
        below = process_tree.descendants(os.getpid()) - self.spared
        for trial in self.running.values():
            trial.memory.end(below)
        shm.wait_for_managers(below)
        process_tree.kill_tree(os.getpid(), include_root=False)
        for trial in self.running.values():
            trial.memory.remove()
        give_up = time.monotonic() + CLEAN_SECONDS
        while self.scratch.name.startswith("autotune-") and self.scratch.exists() and time.monotonic() < give_up:
            # Other zygotes of the run remove it at the same time, and may trip over each other.
            shutil.rmtree(self.scratch, ignore_errors=True)


def unsafe_to_fork() -> str:
    """Why a fork now could hang or corrupt the child; empty where it is safe."""
    threads = process_tree.own_threads()
    if threads > 1:
        return f"{threads - 1} extra thread(s) run after importing the task and building its dataset"
    if "mpi4py.MPI" in sys.modules:
        return "the task imports mpi4py, which has started MPI"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "the task initialised CUDA while it was imported or its dataset was built"
    return ""


def main(arguments: list[str]) -> None:
    """Entry of the server process; ``arguments[0]`` is the descriptor of its channel."""
    process_tree.die_with_parent(signal.SIGTERM)
    process_tree.become_subreaper()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    zygote = Zygote(Channel.from_fd(int(arguments[0])))
    with contextlib.suppress(OSError, SystemExit):
        zygote.serve()
    while True:
        # The death signal may arrive in the middle of cleaning up: then clean up again.
        with contextlib.suppress(SystemExit):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            zygote.shut_down()
            os._exit(0)
