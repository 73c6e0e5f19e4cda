"""One running trial as the parent sees it: its messages, its signs of life, its processes."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from autotune.stats.measurement import Block
from autotune.trial.parent.event_loop import EventLoop
from autotune.trial.parent.judge import TrialEnd, most_telling
from autotune.trial.parent.zygotes import ZygoteProcess
from autotune.trial.spec import TrialReport
from autotune.trial.unix_connection import UnixConnection


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
        code: exit code of the leader; None while it runs.
        timed_out: the phase in which the watchdog ended it; None where it did not.
        start_seconds: from the request to the first step; 0 before that.
    """

    def __init__(
        self,
        zygote: ZygoteProcess,
        connection: UnixConnection,
        pid: int,
        timeouts: Timeouts,
        number: int = 0,
        oom_kills: int | None = None,
    ) -> None:
        self.zygote, self.connection, self.pid, self.timeouts, self.number = zygote, connection, pid, timeouts, number
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
        """True once the whole process tree is gone."""
        return self.code is not None

    @property
    def hung_at(self) -> float:
        """When the watchdog ends it unless it shows a sign of life before, on the monotonic clock."""
        return min(self.last_sign_at + float(getattr(self.timeouts, self.phase)), self.timeouts.deadline)

    def has_events(self, count: int = 1) -> bool:
        """True once ``count`` events wait."""
        return len(self.events) >= count

    def listen(self, loop: EventLoop) -> None:
        """Take messages as they come, and the word of the zygote that all is over."""
        self._loop = loop
        loop.add(self.connection.fileno(), self._read)
        self.zygote.on_exit[self.pid] = self._exited

    def signal(self, signum: int) -> None:
        """Send ``signum`` to the trial's process groups."""
        for group in self._groups if not self.ended else ():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signum)

    def kill(self) -> None:
        """Have the zygote end the whole process tree."""
        self.zygote.send("kill", pid=self.pid)

    def ask_for_block(self, seconds: float) -> None:
        """Have a resident trial measure a block."""
        self.last_sign_at = time.monotonic()
        with contextlib.suppress(OSError):
            self.connection.send({"request": "block", "seconds": seconds})

    def take_block(self) -> Block | None:
        """The block that it has measured; None where it ended, or a loss was not finite."""
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
        """How it ended; ``oom_kills`` is where the memory cgroup's kill counter stands now."""
        before = self._oom_kills_before
        return TrialEnd(
            report=most_telling(self._reports),
            rank_codes=tuple(self.rank_codes),
            code=self.code,
            timed_out=self.timed_out,
            oom_kills=oom_kills - before if oom_kills is not None and before is not None else None,
            log=self.zygote.tail(),
            seconds=time.monotonic() - self.requested_at,
            start_seconds=self.start_seconds,
            leftovers=self._leftovers,
            no_fork_reason=self.zygote.no_fork_reason,
        )

    def close(self) -> None:
        """Listen no longer."""
        self._stop_listening()
        self.zygote.on_exit.pop(self.pid, None)
        self.connection.close()

    def _stop_listening(self) -> None:
        if self._loop is not None:
            self._loop.remove(self.connection.fileno())
            self._loop = None

    def _read(self) -> bool:
        """Record the next message; False where none waits. At the end of the stream, listen no longer."""
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
        """Its process tree is gone: record what it said before, then how it ended."""
        self.connection.socket.setblocking(False)
        while self._read():
            pass
        self.code, self._leftovers = code, leftovers
