"""The parent's end of zygotes: their processes, their replies, and the tail of what their trials print."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autotune.errors import LaunchError, NothingUsable, UserCodeError
from autotune.knobs.settings import Settings
from autotune.trial import process_tree
from autotune.trial.child_command import child_command
from autotune.trial.isolation.private import default_bytes
from autotune.trial.isolation.reasons import explain
from autotune.trial.parent.event_loop import EventLoop
from autotune.trial.parent.trial_setup import TrialSetup
from autotune.trial.script import Script
from autotune.trial.unix_connection import UnixConnection

LOG_BYTES = 2**20
TAIL_BYTES = 4096
LOAD_SECONDS = 120.0
SCRIPT_SECONDS = 600.0
"""A script may take this long to come to its training."""
STACK_SECONDS = 0.5
NO_STEP = "no training step within {:.0f} s{}. Give a longer --budget, or less to do before training starts"
NOT_STARTED = "the budget ended before the script was started: give a longer --budget"
NOT_LOADED = "{}: the budget ended before it was imported and its dataset built: give a longer --budget"
LEAST_SECONDS = 1.0
EXIT_SECONDS = 5.0
OnExit = Callable[[int, int], None]
"""Told a trial's exit code and how many processes outlived it."""


class ZygoteProcess:
    """One living zygote.

    Attributes:
        gone: True once it has ended.
        no_fork_reason: why it starts trials as new processes; None where it forks them.
        script: that it has loaded; None for a task file.
        frontier: where that trains, as plain data.
        gaps: what it does not keep from the user's world.
        on_exit: whom to tell that a trial has ended, by the trial's pid.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], connection: UnixConnection, log_fd: int, loop: EventLoop
    ) -> None:
        self.process, self.connection, self.log_fd, self.loop = process, connection, log_fd, loop
        self.gone = False
        self.no_fork_reason: str | None = None
        self.script: Script | None = None
        self.frontier: dict[str, Any] | None = None
        self.gaps: tuple[str, ...] = ()
        self.on_exit: dict[int, OnExit] = {}
        self._replies: deque[dict[str, Any]] = deque()
        self._log = bytearray()
        loop.add(connection.fileno(), self._read_message)
        loop.add(log_fd, self._read_log)

    @classmethod
    def launch(cls, environment: Mapping[str, str], folder: Path, loop: EventLoop) -> ZygoteProcess:
        """Start a zygote in ``folder``. It makes itself a process group, which the terminal's Ctrl-C does not reach.

        Raises:
            LaunchError: the process could not be started.
        """
        ours, theirs = UnixConnection.pair()
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        try:
            process = subprocess.Popen(
                child_command("zygote", str(theirs.fileno())),
                env=dict(environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                pass_fds=(theirs.fileno(),),
            )
        except OSError as error:
            raise LaunchError(f"could not start a Python process for trials: {error}") from error
        finally:
            theirs.close()
            os.close(write_end)
        return cls(process, ours, read_end, loop)

    def send(self, request: str, fds: tuple[int, ...] = (), **content: Any) -> None:
        """Send a request; a zygote that is gone is noticed by its silence."""
        with contextlib.suppress(OSError):
            self.connection.send({"request": request, **content}, fds)

    def ask(self, request: str, seconds: float, fds: tuple[int, ...] = (), **content: Any) -> dict[str, Any] | None:
        """The reply to a request; None where the zygote is gone or silent for ``seconds``."""
        self.send(request, fds, **content)
        self.loop.wait_until(lambda: bool(self._replies) or self.gone, seconds)
        if not self._replies:
            return None
        reply = self._replies.popleft()
        self.no_fork_reason = reply["no_fork_reason"]
        return reply

    def started_script(self) -> dict[str, Any] | None:
        """`TrialRequest.script` of its trials."""
        return None if self.script is None else {"script": self.script.as_dict(), "frontier": self.frontier}

    def forget_log(self) -> None:
        """Start a new log: what follows belongs to the next trial."""
        self._log.clear()

    def tail(self) -> str:
        """The last lines printed."""
        self._read_log()
        return bytes(self._log[-TAIL_BYTES:]).decode(errors="replace")

    def stacks(self) -> str:
        """Where a script is now: its log's end, after its processes were asked for their stacks."""
        process_tree.send_signal(signal.SIGUSR1, process_tree.descendants(self.process.pid))
        self.loop.wait_until(lambda: self.gone, STACK_SECONDS)
        return self.tail()

    def kill(self) -> int:
        """End the zygote and everything below it at once; returns its exit code."""
        process_tree.kill_tree(self.process.pid)
        return self.process.wait()

    def close(self) -> None:
        """Ask the zygote to end everything below it and itself; insist after a few seconds."""
        self.send("exit")
        try:
            self.process.wait(timeout=EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self.connection.close()
        os.close(self.log_fd)

    def _read_message(self) -> None:
        message, _ = self.connection.receive()
        if message is None:
            self.gone = True
            self.loop.remove(self.connection.fileno())
        elif message["reply"] != "exited":
            self._replies.append(message)
        elif message["pid"] in self.on_exit:
            self.on_exit.pop(message["pid"])(message["code"], message["leftovers"])

    def _read_log(self) -> None:
        """Keep the end of what was printed."""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self.log_fd, 65536)
            self._log += data
            if len(self._log) > LOG_BYTES:
                del self._log[: -LOG_BYTES // 2]
            if not data:
                with contextlib.suppress(KeyError):  # it was removed before
                    self.loop.remove(self.log_fd)


class Zygotes:
    """One zygote for each choice of what a process must start with. Each is started when it is first needed.

    Several processes of a script make their group before they train, so they cannot be forked where it trains: further
    zygotes run them from the script's start.
    """

    def __init__(self, setup: TrialSetup, loop: EventLoop) -> None:
        self._setup, self._loop = setup, loop
        self._living: dict[tuple[tuple[Any, ...], bool], ZygoteProcess] = {}

    def get(self, settings: Settings, deadline: float, *, several: bool = False) -> ZygoteProcess:
        """The zygote for ``settings``, with the task loaded; it may take until ``deadline`` on the monotonic clock.

        Args:
            settings: of its trials; only what a process must start with counts.
            deadline: of loading.
            several: for trials of several processes.

        Raises:
            UserCodeError: the task could not be imported or its dataset not built.
            NothingUsable: not by the ``deadline``.
        """
        from_start = several and self._setup.script is not None
        frontier = self.get(Settings(), deadline).frontier if from_start else None
        key = settings.inherited, from_start
        zygote = self._living.get(key)
        if zygote is None or zygote.gone:
            setup = self._setup
            zygote = ZygoteProcess.launch(setup.environment(settings), setup.origin, self._loop)
            self._living[key] = zygote
            self._load(zygote, deadline, frontier)
        return zygote

    def close(self) -> None:
        """End all of them and everything below them."""
        for zygote in self._living.values():
            zygote.close()
        self._living.clear()

    def _load(self, zygote: ZygoteProcess, deadline: float, frontier: Mapping[str, Any] | None) -> None:
        setup = self._setup
        task, script = str(setup.task), setup.script
        most = SCRIPT_SECONDS if script is not None else LOAD_SECONDS
        seconds = max(0.0, min(most, deadline - time.monotonic()))
        if script is not None and seconds < LEAST_SECONDS:
            zygote.kill()
            raise NothingUsable(NOT_STARTED)
        reply = zygote.ask(
            "load",
            seconds,
            task=task,
            seed=setup.seed,
            scratch=str(setup.paths.root),
            script=None if script is None else script.as_dict(),
            users_threads=setup.users_threads,
            frontier=frontier,
        )
        if reply is None:
            timed_out = not zygote.gone
            stacks = zygote.stacks() if timed_out and script is not None else ""
            code = zygote.kill()
            if timed_out and script is not None:
                where = last_place(stacks, script.path.parent)
                raise UserCodeError(f"{task}: {NO_STEP.format(seconds, where)}")
            if timed_out and seconds < most:
                raise NothingUsable(NOT_LOADED.format(task))
            how = f"no end within {seconds:.0f} s" if timed_out else f"the process ended with exit code {code}"
            raise UserCodeError(f"{task}: {how} while it was imported and its dataset built", zygote.tail())
        if reply["error"] is not None:
            error = reply["error"]
            said = f"{task}: {error['error_type']}: {error['error']}"
            printed = zygote.tail() if error["error_type"] == "SystemExit" else ""  # its traceback does not say why
            raise UserCodeError("\n".join([said, *_explained(script, error)]), printed or error["traceback"])
        zygote.script, zygote.frontier, zygote.gaps = script, reply["frontier"], tuple(reply["gaps"])


def _explained(script: Script | None, error: Mapping[str, Any]) -> list[str]:
    """What to do where a script fails for what a trial does not give it."""
    if script is None:
        return []
    words = explain(error["error_type"], error["error"], network=script.network, room=default_bytes())
    return [] if words is None else [words]


def last_place(stacks: str, folder: Path) -> str:
    """``; it is in FUNCTION (FILE:LINE)`` for the innermost frame of a file in ``folder``, or nothing."""
    for file, line, function in re.findall(r'File "([^"]+)", line (\d+) in (\S+)', stacks):
        if Path(file).is_relative_to(folder):
            return f"; it is in {function} ({Path(file).name}:{line})"
    return ""
