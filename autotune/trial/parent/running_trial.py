"""One running trial as the parent sees it: its messages, its signs of life, its processes."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autotune.stats.measurement import Block
from autotune.stats.outcome import BUDGET_OVER
from autotune.trial import process_tree
from autotune.trial.messages import TrialReport, UnixConnection
from autotune.trial.parent.fork_servers import EventLoop, ForkServerProcess
from autotune.trial.parent.judge import TrialEnd, most_telling

STACK_DUMP_SECONDS = 0.3


@dataclass(frozen=True)
class Timeouts:
    """Seconds without a sign of life after which a trial counts as hung, by phase, and the end of the whole budget."""

    starting: float = 60.0
    compiling: float = 300.0
    stepping: float = 30.0
    deadline: float = float("inf")
    """On the monotonic clock."""


class RunningTrial:
    """A trial from its start until nothing of it is left. Made by `Runner.start`.

    Attributes:
        events: messages that wait for the runner: facts of the task, or signs of a resident trial.
        code: exit code of the launcher; None while it runs.
        timed_out: the phase in which the watchdog ended it; None if it did not.
        start_seconds: from the request to the first step; 0 before that.
    """

    def __init__(
        self,
        server: ForkServerProcess,
        connection: UnixConnection,
        pid: int,
        timeouts: Timeouts,
        number: int = 0,
        oom_kills: int | None = None,
    ) -> None:
        self.server, self.connection, self.pid, self.timeouts, self.number = server, connection, pid, timeouts, number
        self.requested_at = self.last_sign_at = time.monotonic()
        self.events: deque[dict[str, Any]] = deque()
        self.code: int | None = None
        self.timed_out: str | None = None
        self.phase = "starting"
        self.rank_codes: list[int] = []
        self._groups = [pid]
        self._oom_kills_before = oom_kills
        self.start_seconds = 0.0
        self._reports: list[TrialReport] = []
        self._leftovers = 0
        self._loop: EventLoop | None = None

    @property
    def ended(self) -> bool:
        """Return True once the whole process tree is gone."""
        return self.code is not None

    @property
    def hung_at(self) -> float:
        """Return when the watchdog ends it unless it shows a sign of life before, on the monotonic clock."""
        return min(self.last_sign_at + float(getattr(self.timeouts, self.phase)), self.timeouts.deadline)

    def has_events(self, count: int = 1) -> bool:
        """Return True once ``count`` events wait."""
        return len(self.events) >= count

    def listen(self, loop: EventLoop) -> None:
        """Take messages as they come, and the word of the fork server that all is over."""
        self._loop = loop
        loop.add(self.connection.fileno(), self._read)
        self.server.on_exit[self.pid] = self._exited

    def signal(self, signum: int) -> None:
        """Send ``signum`` to the trial's process groups."""
        for group in self._groups if not self.ended else ():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signum)

    def kill(self) -> None:
        """Have the fork server end the whole process tree."""
        self.server.send("kill", pid=self.pid)

    def ask_for_block(self, seconds: float) -> None:
        """Have a resident trial measure a block."""
        self.last_sign_at = time.monotonic()
        with contextlib.suppress(OSError):
            self.connection.send({"request": "block", "seconds": seconds})

    def take_block(self) -> Block | None:
        """Return the block that it has measured; None if it ended, or a loss was not finite."""
        message = self.events.popleft() if self.events else None
        return Block(**message["block"]) if message is not None and message["finite"] else None

    def record(self, message: dict[str, Any]) -> None:
        """Book a message."""
        self.last_sign_at = time.monotonic()
        event = message["event"]
        if event == "rank-started":
            self._groups.append(message["pid"])
            return
        if event == "phase":
            self.phase = message["phase"]
            if message.get("first_step"):
                self.start_seconds = self.last_sign_at - self.requested_at
        elif event == "report":
            self._reports.append(TrialReport.from_dict(message["report"]))
        elif event == "rank-ended":
            self.rank_codes.append(message["code"])
        else:
            self.events.append(message)

    def end(self, oom_kills: int | None) -> TrialEnd:
        """Return how it ended; ``oom_kills`` is where the memory cgroup's kill counter stands now."""
        before = self._oom_kills_before
        return TrialEnd(
            report=most_telling(self._reports),
            rank_codes=tuple(self.rank_codes),
            code=self.code,
            timed_out=self.timed_out,
            oom_kills=oom_kills - before if oom_kills is not None and before is not None else None,
            log=self.server.tail(),
            seconds=time.monotonic() - self.requested_at,
            start_seconds=self.start_seconds,
            leftovers=self._leftovers,
            no_fork_reason=self.server.no_fork_reason,
        )

    def close(self) -> None:
        """Listen no longer."""
        self._stop_listening()
        self.server.on_exit.pop(self.pid, None)
        self.connection.close()

    def _stop_listening(self) -> None:
        if self._loop is not None:
            self._loop.remove(self.connection.fileno())
            self._loop = None

    def _read(self) -> bool:
        """Record the next message; False if none waits. At the end of the stream, listen no longer."""
        try:
            message, _ = self.connection.receive()
        except BlockingIOError:
            return False
        if message is None:
            self._stop_listening()
            return False
        self.record(message)
        return True

    def _exited(self, code: int, leftovers: int) -> None:
        """Record what it sent before, and then how it ended: its process tree is gone."""
        self.connection.socket.setblocking(False)
        while self._read():
            pass
        self.code, self._leftovers = code, leftovers


def wait(loop: EventLoop, trial: RunningTrial, done: Callable[[], bool]) -> None:
    """Sleep until ``done`` or the trial's end, or until it counts as hung: then its ``timed_out`` is set."""
    while not done() and not trial.ended:
        left = trial.hung_at - time.monotonic()
        if left <= 0:
            over = time.monotonic() >= trial.timeouts.deadline
            trial.timed_out = BUDGET_OVER if over else trial.phase
            if not over:  # every rank writes to the log where it is stuck
                process_tree.send_signal(signal.SIGUSR1, process_tree.descendants(trial.pid))
                loop.wait_until(lambda: False, STACK_DUMP_SECONDS)
            return
        if loop.wait(left):
            trial.last_sign_at = time.monotonic()  # where all stood still, or the clock jumped, nobody hangs
        if trial.server.gone and not trial.ended:
            trial.code = trial.server.process.wait()
