"""One running trial as the parent sees it: its messages, its signs of life, its processes."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autotune.trial.parent.judge import End, is_echo
from autotune.trial.parent.zygote_process import Server
from autotune.trial.spec import TrialReport
from autotune.trial.unix_connection import Channel


@dataclass(frozen=True)
class Limits:
    """Seconds without a sign of life after which a trial counts as hung, by phase, and the end of the whole budget."""

    starting: float = 60.0
    compiling: float = 300.0
    stepping: float = 30.0
    deadline: float = float("inf")
    """On the monotonic clock."""

    def of(self, phase: str) -> float:
        """The limit of ``phase``."""
        return float(getattr(self, phase))


class Trial:
    """One running trial as the parent sees it. Made by `Runner.start`."""

    def __init__(
        self, server: Server, channel: Channel, pid: int, limits: Limits, oom_kills: int | None, number: int = 0
    ) -> None:
        self.server, self.channel, self.pid, self.limits = server, channel, pid, limits
        self.number = number
        self.oom_before = oom_kills
        self.requested = self.signed = time.monotonic()
        self.phase = "starting"
        self.start_seconds = 0.0
        self.events: deque[dict[str, Any]] = deque()
        self.reports: list[TrialReport] = []
        self.rank_codes: list[int] = []
        self.code: int | None = None
        self.leftovers = 0
        self.timed_out: str | None = None
        self.listening = True
        self.elsewhere: list[tuple[str, dict[str, Any]]] = []
        """How its part on each other machine ended."""
        self.relay: Callable[[dict[str, Any]], None] = lambda message: None
        """Told every message too."""

    @property
    def ended(self) -> bool:
        """True once the whole process tree is gone."""
        return self.code is not None

    @property
    def quiet_until(self) -> float:
        """When the watchdog's patience ends, on the monotonic clock."""
        return min(self.signed + self.limits.of(self.phase), self.limits.deadline)

    def signal(self, signum: int) -> None:
        """Send ``signum`` to the whole process group."""
        if not self.ended:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signum)

    def take(self, message: dict[str, Any]) -> None:
        """Book one message of the trial's own."""
        self.signed = time.monotonic()
        self.relay(message)
        event = message["event"]
        if event == "phase":
            self.phase = message["phase"]
            if message.get("first_step"):
                self.start_seconds = self.signed - self.requested
        elif event == "report":
            self.reports.append(TrialReport.from_dict(message["report"]))
        elif event == "rank-ended":
            self.rank_codes.append(message["code"])
        else:
            self.events.append(message)

    def end(self, oom_kills: int | None) -> End:
        """How it ended, here and elsewhere; ``oom_kills`` is where the memory cgroup's kill counter stands now."""
        own = oom_kills - self.oom_before if oom_kills is not None and self.oom_before is not None else None
        counted = [own, *(said["oom_kills"] for _, said in self.elsewhere)]
        known = [count for count in counted if count is not None]
        logs = [f"{name}:\n{said['log']}" for name, said in self.elsewhere if said["log"]]
        return End(
            report=self.report(),
            rank_codes=tuple(self.rank_codes),
            code=self.code,
            timed_out=self.timed_out,
            oom_kills=sum(known) if known else None,
            log="\n".join([self.server.tail(), *logs]),
            seconds=time.monotonic() - self.requested,
            start_seconds=self.start_seconds,
            leftovers=self.leftovers,
            fresh=self.server.fresh,
        )

    def report(self) -> TrialReport | None:
        """The first report of an error that is not the echo of another rank's end, else the first of something that
        was not applied, else any report."""
        errors = [report for report in self.reports if report.error_type is not None]
        own = [report for report in errors if not is_echo(report)]
        lacking = [report for report in self.reports if report.not_applied]
        return next(iter((*own, *errors, *lacking, *self.reports)), None)
