"""The parent's side of trials: starts them through zygotes, watches them, and says how each ended.

The parent sleeps in one selector while trials run; it never polls and never imports torch.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from autotune.core.binding import Plan
from autotune.core.errors import LaunchError, UserCodeError
from autotune.core.measurement import Block
from autotune.core.outcome import BUDGET_OVER
from autotune.core.settings import Settings
from autotune.core.task import TaskFacts
from autotune.trial import process_tree
from autotune.trial.parent.fleet import Fleet
from autotune.trial.parent.judge import End, how_it_ended
from autotune.trial.parent.running_trial import Limits, Trial
from autotune.trial.parent.zygote_process import Server
from autotune.trial.paths import StudyPaths
from autotune.trial.spec import Meeting, TrialSpec
from autotune.trial.unix_connection import Channel

LOAD_SECONDS = 120.0
ANSWER_SECONDS = 30.0
STEP_SECONDS = (5.0, 10.0)
"""How long the parent waits for each message about the user's step that follows the facts."""
KILL_SECONDS = 10.0
STACK_DUMP_SECONDS = 0.3


class Runner:
    """Starts and watches trials of one task file.

    Args:
        task: the task file.
        paths: scratch folder of the study.
        environment: allocator name -> environment of the zygote that serves it.
        origin: the user's working folder, mirrored for each trial.
        seed: seed of data order and weights.
        oom_kills: reads the memory cgroup's kill counter.
        places: where the processes of settings run on this machine.
        spread: settings of each of several machines, as all their processes together have them.
        fleet: the agents on other machines that take part in every trial.
    """

    def __init__(
        self,
        task: Path,
        paths: StudyPaths,
        environment: Callable[[str], Mapping[str, str]],
        origin: Path,
        seed: int = 0,
        oom_kills: Callable[[], int | None] = lambda: None,
        places: Callable[[Settings], Plan] = lambda _: Plan(),
        spread: Callable[[Settings, int], Settings] = lambda settings, _: settings,
        fleet: Fleet | None = None,
    ) -> None:
        self.task, self.paths, self.environment, self.origin = task, paths, environment, origin
        self.seed, self.oom_kills, self.places = seed, oom_kills, places
        self.spread, self.fleet = spread, fleet or Fleet()
        self.servers: dict[str, Server] = {}
        self.trials: dict[int, Trial] = {}
        self.selector = selectors.DefaultSelector()
        self.number = 0
        self.deadline = float("inf")
        """End of the whole budget on the monotonic clock; bounds what has no limits of its own."""

    def __enter__(self) -> Runner:
        process_tree.become_subreaper()
        self.fleet.watch(self.selector)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        process_tree.become_subreaper(False)

    def describe(self, limits: Limits | None = None) -> TaskFacts:
        """Load the task and read its facts in a child.

        Raises:
            UserCodeError: the user's code failed while it was loaded, built or read.
        """
        trial = self._start("describe", None, limits or Limits(deadline=self.deadline))
        try:
            self._wait(trial, lambda: bool(trial.events))
            for number, seconds in enumerate(STEP_SECONDS, start=1):
                trial.limits = replace(trial.limits, starting=seconds)
                self._wait(trial, partial(_has_said_more_than, trial, number))
        finally:
            self.stop(trial)
        if trial.events:
            return TaskFacts.from_events(trial.events)
        report = trial.report()
        if report is not None and report.error_type is not None:
            raise UserCodeError(f"{self.task}: {report.error_type}: {report.error}", report.traceback)
        how = how_it_ended(self.end(trial)).reason
        raise UserCodeError(f"{self.task}: the task could not be built: {how}", trial.server.tail())

    def start(self, spec: TrialSpec, limits: Limits, meeting: Meeting | None = None) -> Trial:
        """Start a trial and return at once; this machine's part of it where its ranks have a ``meeting``."""
        own = meeting or self.fleet.meeting()
        self.fleet.start(self.number + 1, spec, own)
        trial = self._start("trial", spec, limits, own)
        self.fleet.started(trial)
        return trial

    def run(self, spec: TrialSpec, limits: Limits) -> End:
        """Run a trial to its end."""
        trial = self.start(spec, limits)
        try:
            self._wait(trial, lambda: trial.ended)
        finally:
            self.stop(trial)
        return self.end(trial)

    def ready(self, trial: Trial) -> bool:
        """Wait until a resident trial is warm, then pause it; False where it ended instead."""
        self._wait(trial, lambda: bool(trial.events))
        trial.events.clear()
        self._signal(trial, signal.SIGSTOP)
        return not trial.ended

    def block(self, trial: Trial, seconds: float) -> Block | None:
        """One block of about ``seconds`` of a resident trial, paused before and after; None where it ended."""
        if trial.ended:
            return None
        self._signal(trial, signal.SIGCONT)
        trial.signed = time.monotonic()
        with contextlib.suppress(OSError):
            trial.channel.send({"request": "block", "seconds": seconds})
        self._wait(trial, lambda: bool(trial.events))
        self._signal(trial, signal.SIGSTOP)
        if not trial.events:
            return None
        message = trial.events.popleft()
        return Block(**message["block"]) if message["finite"] else None

    def stop(self, trial: Trial) -> None:
        """End a trial, whatever it is doing, and wait until nothing of it is left."""
        if not trial.ended:
            trial.server.request("kill", pid=trial.pid)
        self.fleet.stop(trial)
        give_up = time.monotonic() + KILL_SECONDS
        while not (trial.ended and self.fleet.ended(trial)) and not trial.server.gone and time.monotonic() < give_up:
            self.pump(give_up - time.monotonic())
        self.fleet.forget(trial)
        if self.trials.pop(trial.pid, None) is not None:
            self._stop_listening(trial)
            trial.channel.close()

    def end(self, trial: Trial) -> End:
        """How a stopped trial ended."""
        return trial.end(self.oom_kills())

    def close(self) -> None:
        """End all trials and zygotes, and remove the scratch folder."""
        for server in self.servers.values():
            server.close()
        for trial in self.trials.values():
            trial.channel.close()
        self.servers.clear()
        self.trials.clear()
        self.selector.close()
        # Orphans come here only from a zygote that was killed before it could clean up.
        for orphan in process_tree.marked_children(str(self.paths.root)):
            process_tree.kill_tree(orphan)
        self.paths.remove()

    def warm(self, allocator: str = "default") -> Server:
        """The zygote for ``allocator``, started and loaded if need be.

        Raises:
            UserCodeError: the task could not be imported or its dataset not built.
        """
        server = self.servers.get(allocator)
        if server is not None and not server.gone:
            return server
        server = self.servers[allocator] = Server.launch(self.environment(allocator), self.origin)
        self.selector.register(server.channel, selectors.EVENT_READ, server)
        self.selector.register(server.log_fd, selectors.EVENT_READ, server)
        server.request("load", task=str(self.task), seed=self.seed, scratch=str(self.paths.root))
        allowed = max(0.0, min(LOAD_SECONDS, self.deadline - time.monotonic()))
        answer = self._answer(server, allowed)
        if answer is None:
            timed_out = not server.gone
            process_tree.kill_tree(server.process.pid)
            code = server.process.wait()
            how = f"no end within {allowed:.0f} s" if timed_out else f"the process ended with exit code {code}"
            raise UserCodeError(f"{self.task}: {how} while it was imported and its dataset built", server.tail())
        if answer["error"] is not None:
            error = answer["error"]
            raise UserCodeError(f"{self.task}: {error['type']}: {error['text']}", error["traceback"])
        server.fresh = answer["fresh"]
        return server

    def _answer(self, server: Server, seconds: float) -> dict[str, Any] | None:
        """The next answer of a zygote; None where it is gone or silent for ``seconds``."""
        give_up = time.monotonic() + seconds
        while not server.answers and not server.gone and time.monotonic() < give_up:
            self.pump(give_up - time.monotonic())
        return server.answers.popleft() if server.answers else None

    def _signal(self, trial: Trial, signum: int) -> None:
        trial.signal(signum)
        self.fleet.signal(trial, signum)

    def _start(self, job: str, spec: TrialSpec | None, limits: Limits, meeting: Meeting | None = None) -> Trial:
        server = self.warm(spec.settings.allocator if spec is not None else "default")
        ours, theirs = Channel.pair()
        self.number = number = self.number + 1
        if not self.trials:
            server.forget_log()
        before, requested = self.oom_kills(), time.monotonic()
        server.request(
            "start",
            (theirs.fileno(),),
            job=job,
            folder=str(self.paths.trial(self.number)),
            origin=str(self.origin),
            seed=self.seed,
            spec=self._spread(spec, meeting).as_dict() if spec is not None else None,
            binding=self.places(spec.settings).text if spec is not None else "",
            meeting=asdict(meeting) if meeting is not None else None,
        )
        theirs.close()
        answer = self._answer(server, ANSWER_SECONDS)
        if answer is None:
            server.gone = True
            raise LaunchError(f"the trial server ended unexpectedly:\n{server.tail()}")
        server.fresh = answer["fresh"]
        trial = self.trials[answer["pid"]] = Trial(server, ours, answer["pid"], limits, before, number)
        trial.requested = requested
        self.selector.register(ours, selectors.EVENT_READ, trial)
        return trial

    def _spread(self, spec: TrialSpec, meeting: Meeting | None) -> TrialSpec:
        return spec if meeting is None else replace(spec, settings=self.spread(spec.settings, meeting.nnodes))

    def _wait(self, trial: Trial, done: Callable[[], bool]) -> None:
        """Sleep until ``done`` or the trial's end; the watchdog ends a trial that shows no sign of life."""
        while not done() and not trial.ended:
            left = trial.quiet_until - time.monotonic()
            if left <= 0:
                self._time_out(trial)
                return
            self.pump(left)
            if trial.server.gone and not trial.ended:
                trial.code = trial.server.process.wait()

    def _time_out(self, trial: Trial) -> None:
        over = time.monotonic() >= trial.limits.deadline
        trial.timed_out = BUDGET_OVER if over else trial.phase
        if not over:
            self._dump_stacks(trial)
        self.stop(trial)

    def _dump_stacks(self, trial: Trial) -> None:
        """Ask every rank where it is stuck; the answer lands in the log."""
        for pid in process_tree.descendants(trial.pid):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGUSR1)
        give_up = time.monotonic() + STACK_DUMP_SECONDS
        while time.monotonic() < give_up:
            self.pump(give_up - time.monotonic())

    def pump(self, timeout: float) -> None:
        """Sleep until something arrives, then book all of it."""
        for key, _ in self.selector.select(max(0.0, timeout)):
            if callable(key.data):
                key.data()
            elif isinstance(key.data, Trial):
                self._from_trial(key.data)
            elif key.fileobj is key.data.channel:
                self._from_server(key.data)
            elif not key.data.read_log():
                self.selector.unregister(key.fileobj)

    def _from_trial(self, trial: Trial) -> None:
        message, _ = trial.channel.receive()
        if message is None:
            self._stop_listening(trial)
        else:
            trial.take(message)

    def _from_server(self, server: Server) -> None:
        message, _ = server.channel.receive()
        if message is None:
            server.gone = True
            self.selector.unregister(server.channel)
        elif message["answer"] == "exited":
            trial = self.trials.get(message["pid"])
            if trial is not None:
                trial.channel.socket.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    while trial.listening:
                        self._from_trial(trial)
                trial.code, trial.leftovers = message["code"], message["leftovers"]
        else:
            server.answers.append(message)

    def _stop_listening(self, trial: Trial) -> None:
        if trial.listening:
            trial.listening = False
            self.selector.unregister(trial.channel)


def _has_said_more_than(trial: Trial, messages: int) -> bool:
    return len(trial.events) > messages
