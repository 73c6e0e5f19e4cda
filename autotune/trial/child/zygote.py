"""The server that starts trials: imports torch and the user's module once, then forks one leader per trial.

Forking is safe only while this process has one thread and no CUDA context, so that is checked before every fork;
where it does not hold, trials start as new processes instead and say so. The zygote is also the guard: it is the
subreaper of everything below it and ends all of it when the tuner goes away, however that happens.

Requests: load, start, kill, exit. Replies: loaded, started, exited.
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
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.trial import process_tree
from autotune.trial.child import leader, shm
from autotune.trial.child_command import child_command
from autotune.trial.paths import SCRATCH_PREFIX
from autotune.trial.script import Script
from autotune.trial.spec import TrialRequest
from autotune.trial.unix_connection import UnixConnection
from autotune.trial.user_errors import error_report

if TYPE_CHECKING:
    from autotune.trial.child.loaded_task import LoadedTask
    from autotune.trial.child.script_trial import LoadedScript

CLEAN_SECONDS = 2.0


class Zygote:
    """State of the server between requests."""

    def __init__(self, connection: UnixConnection) -> None:
        self.connection = connection
        self.task: LoadedTask | LoadedScript | None = None
        self.scratch = Path()
        self.trials: dict[int, shm.Segments] = {}
        """Shared memory of the living trials, by their leader's pid."""
        self.no_fork_reason: str | None = None
        self.spared: frozenset[int] = frozenset()
        """What the user's module started on import belongs to it, as in training: it is not a leftover of a trial."""

    def load(self, request: dict[str, Any]) -> None:
        """Import torch and the user's code as far as possible, and say whether forking is safe."""
        self.scratch = Path(request["scratch"])
        if request["script"] is not None:
            self._load_script(request)
            return
        error = None
        try:
            from autotune.trial.child import loaded_task, rank  # noqa: F401  # ranks find their imports done

            self.task = loaded_task.load(Path(request["task"]))
            self.task.build_dataset(request["seed"])
        except BaseException as failure:
            error = asdict(error_report(failure))
        self.loaded(error, why_not_fork())

    def _load_script(self, request: dict[str, Any]) -> None:
        from autotune.trial.child.loaded_task import warm_lazy_imports
        from autotune.trial.child.script_zygote import ScriptZygote

        warm_lazy_imports()
        loaded = ScriptZygote(self, Script.from_dict(request["script"]), request["users_threads"], why_not_fork)
        if request["frontier"] is None:
            loaded.load()
        else:
            from autotune.trial.child.scout import Frontier

            loaded.serve_from_start(Frontier(**request["frontier"]))

    def loaded(
        self, error: dict[str, Any] | None = None, no_fork_reason: str | None = None, frontier: Any = None
    ) -> None:
        """Tell the tuner that trials can start, or why not."""
        self.spared = frozenset(process_tree.descendants(os.getpid()))
        self.no_fork_reason = no_fork_reason
        self._reply("loaded", error=error, no_fork_reason=no_fork_reason, frontier=frontier, gaps=self._gaps())

    def _gaps(self) -> tuple[str, ...]:
        """Return what this process does not keep from the user's world."""
        if self.task is None:
            return ()
        from autotune.trial.child.script_trial import LoadedScript

        isolation = self.task.isolation if isinstance(self.task, LoadedScript) else None
        return () if isolation is None else isolation.gaps

    def start(self, request: TrialRequest, fd: int) -> None:
        """Start one trial; its leader talks to the tuner over descriptor ``fd``."""
        self.no_fork_reason = self.no_fork_reason or why_not_fork()
        pid = self._spawn(request, fd) if self.no_fork_reason else self._fork(request, fd)
        os.close(fd)
        self.trials[pid] = shm.Segments(Path(request.folder))
        self._reply("started", pid=pid, no_fork_reason=self.no_fork_reason)

    def _reply(self, what: str, **content: Any) -> None:
        self.connection.send({"reply": what, **content})

    def _fork(self, request: TrialRequest, fd: int) -> int:
        pid = os.fork()
        if pid:
            return pid
        with leader.last_words():
            self.connection.close()
            signal.set_wakeup_fd(-1)
            for signum in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(signum, signal.SIG_DFL)
            os._exit(leader.lead(request, UnixConnection.from_fd(fd), self.task))
        raise AssertionError  # not reached

    def _spawn(self, request: TrialRequest, fd: int) -> int:
        command = child_command("leader", str(fd), json.dumps(asdict(request)))
        return subprocess.Popen(command, pass_fds=(fd,), stdin=subprocess.DEVNULL).pid

    def collect(self) -> None:
        """Reap ended children. After a leader's end nothing of its trial stays."""
        for pid, status in process_tree.reap():
            memory = self.trials.pop(pid, None)
            if memory is None:
                continue
            orphans = self._orphans()
            leftovers = memory.end(orphans)
            for orphan in leftovers:
                process_tree.kill_tree(orphan)
            memory.remove()
            if not any(map(shm.is_manager, orphans)):  # their sockets are in there
                shutil.rmtree(memory.folder, ignore_errors=True)
            code = os.waitstatus_to_exitcode(status)
            self._reply("exited", pid=pid, code=code, leftovers=len(leftovers))

    def _orphans(self) -> set[int]:
        """Processes below the zygote that belong to no running trial."""
        owned = set(self.trials)
        for pid in self.trials:
            owned |= process_tree.descendants(pid)
        return process_tree.descendants(os.getpid()) - owned - self.spared

    def serve(self) -> None:
        """Answer requests until the tuner says exit or goes away."""
        wakeup, write_end = os.pipe()
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            ready, _, _ = select.select([self.connection.fileno(), wakeup], [], [])
            if wakeup in ready:
                os.read(wakeup, 4096)
                self.collect()
            if self.connection.fileno() in ready:
                message, fds = self.connection.receive()
                if message is None or message["request"] == "exit":
                    return
                self._serve_one(message, fds)

    def _serve_one(self, message: dict[str, Any], fds: list[int]) -> None:
        if message["request"] == "load":
            self.load(message)
        elif message["request"] == "start":
            self.start(TrialRequest.from_dict(message["trial"]), fds[0])
        elif message["request"] == "kill" and (pid := message["pid"]) in self.trials:
            self.trials[pid].end(process_tree.descendants(pid) | {pid})
            process_tree.kill_tree(pid)

    def shut_down(self) -> None:
        """Leave nothing behind: processes, shared memory, files."""
        below = process_tree.descendants(os.getpid()) - self.spared
        for memory in self.trials.values():
            memory.end(below)
        shm.wait_for_managers(below)
        process_tree.kill_tree(os.getpid(), include_root=False)
        for memory in self.trials.values():
            memory.remove()
        give_up = time.monotonic() + CLEAN_SECONDS
        while self.scratch.name.startswith(SCRATCH_PREFIX) and self.scratch.exists() and time.monotonic() < give_up:
            # Other zygotes of the run remove it at the same time, and may trip over each other.
            shutil.rmtree(self.scratch, ignore_errors=True)


def why_not_fork() -> str | None:
    """Why a fork now could hang or corrupt the child; None where it is safe."""
    threads = process_tree.own_threads()
    if threads > 1:
        return f"{threads - 1} extra thread(s) run after importing the task and building its dataset"
    if "mpi4py.MPI" in sys.modules:
        return "the task imports mpi4py, which has started MPI"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "the task initialised CUDA while it was imported or its dataset was built"
    return None


def main(arguments: list[str]) -> None:
    """Entry of the server process; ``arguments[0]`` is the descriptor of its connection."""
    process_tree.lead_group()
    process_tree.leave_terminal()
    process_tree.die_with_parent(signal.SIGTERM)
    process_tree.become_subreaper()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    zygote = Zygote(UnixConnection.from_fd(int(arguments[0])))
    with contextlib.suppress(OSError, SystemExit):
        zygote.serve()
    while True:
        # The death signal may arrive in the middle of cleaning up: then clean up again.
        with contextlib.suppress(SystemExit):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            zygote.shut_down()
            os._exit(0)
