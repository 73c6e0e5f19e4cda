"""The parent's side of trials: starts them through fork servers, waits for them, and reports how each ended.

A `RunningTrial` holds its messages, its signs of life and its processes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from autotune.decoding import decoded
from autotune.errors import LaunchError, NothingUsable, UserCodeError
from autotune.knobs.settings import Settings
from autotune.knobs.task import TaskFacts
from autotune.stats.measurement import Block
from autotune.stats.outcome import BUDGET_OVER
from autotune.trial.messages import RankEvidence, TrialReport, TrialRequest, TrialSpec, UnixConnection
from autotune.trial.parent import several_processes
from autotune.trial.parent.fork_servers import EventLoop, ForkServerProcess, NotInTime, TrialSetup
from autotune.trial.parent.judge import TrialEnd, how_it_ended, most_telling
from autotune.trial.parent.several_processes import Recorded
from autotune.trial.target import Script

PLAIN = Settings()
REPLY_SECONDS = 30.0
STEP_SECONDS = 15.0
"""How long the parent waits for facts that the user's step shows, after the others."""
KILL_SECONDS = 10.0
PATIENCE, USUAL_PATIENCE = 2.0, 15.0
"""A script may show no sign of life for so many times what it took until it trained, or these seconds."""
MOST_SHARE, LEAST_SECONDS = 0.25, 5.0
"""Several processes are tried if starting the script takes this share of the budget that is left at most, or these
seconds."""
NOT_LOADED = (
    "the script could not be started again as one of several processes within {:.0f} s; a longer --budget tries it"
)
STARTED_AGAIN = (
    "the script does not start without what torchrun sets (RANK and others), so it is started as torchrun starts one"
    " process; several: autotune tune torchrun --nproc-per-node=N"
)
NO_TIME = "the script takes {:.0f} s until it trains, too long to try several processes; a longer --budget tries them"


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
        oom_kills: int | None = None,
    ) -> None:
        self.server, self.connection, self.pid, self.timeouts = server, connection, pid, timeouts
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

    def listen(self) -> None:
        """Take messages as they come, and the word of the fork server that all is over."""
        self.server.loop.add(self.connection.fileno(), self._read)
        self.server.on_exit[self.pid] = self._exited

    def signal(self, signum: int) -> None:
        """Send ``signum`` to the trial's process groups."""
        for group in self._groups if not self.ended else ():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signum)

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
            self._reports.append(decoded(TrialReport, message["report"]))
        elif event == "rank-ended":
            self.rank_codes.append(message["code"])
        else:
            self.events.append(message)

    def end(self, oom_kills: int | None) -> TrialEnd:
        """Return how it ended; ``oom_kills`` is where the memory cgroup's kill counter stands now."""
        before = self._oom_kills_before
        facts = self.server.facts
        why_from_start = None if facts is None else facts.no_fork_reason
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
            no_fork_reason=self.server.no_fork_reason or why_from_start,
        )

    def close(self) -> None:
        """Listen no longer."""
        self.server.loop.remove(self.connection.fileno())
        self.server.on_exit.pop(self.pid, None)
        self.connection.close()

    def _read(self) -> bool:
        """Record the next message; False if none waits. At the end of the stream, listen no longer."""
        try:
            message, _ = self.connection.receive()
        except BlockingIOError:
            return False
        if message is None:
            self.server.loop.remove(self.connection.fileno())
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
                trial.server.stacks(trial.pid)
            return
        if loop.wait(left):
            trial.last_sign_at = time.monotonic()  # where all stood still, or the clock jumped, nobody hangs
        if trial.server.gone and not trial.ended:
            trial.code = trial.server.process.wait()


class Runner:
    """Starts and watches trials of one task file.

    Args:
        setup: what all of them share.
    """

    def __init__(self, setup: TrialSetup) -> None:
        self.setup = setup
        self.loop = EventLoop()
        self.trials: set[RunningTrial] = set()
        self.started = 0
        self.deadline = float("inf")
        """End of the whole budget on the monotonic clock; bounds what has no timeouts of its own."""
        self.script_seconds = 0.0
        """From the start of a script until it trained; 0 for a task file."""
        self.several_seconds = 0.0
        """What several processes of a script take until they have trained a few steps."""
        self._script = setup.script
        """How it is started; as torchrun does it once it is known that it does not start otherwise."""
        self._servers: dict[tuple[tuple[Any, ...], bool], ForkServerProcess] = {}
        """By what their trials must start with, and if those are several processes of a script."""

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        """End all trials and fork servers, and remove the scratch folder."""
        for server in self._servers.values():
            server.close()
        self._servers.clear()
        for trial in self.trials:
            trial.connection.close()
        self.trials.clear()
        self.loop.close()
        self.setup.paths.remove()

    def warm(self) -> ForkServerProcess:
        """Return the fork server for most settings, started and loaded if need be.

        Raises:
            UserCodeError: the task could not be imported or its dataset not built.
        """
        return self._server(PLAIN, self.deadline)

    def _server(self, settings: Settings, deadline: float) -> ForkServerProcess:
        """Return the fork server for trials with ``settings``, started and loaded by the ``deadline`` if need be.

        Raises:
            UserCodeError: the task could not be imported or its dataset not built.
            NothingUsable: not by the ``deadline``.
        """
        several = settings.processes > 1 and self._script is not None
        facts = self._server(PLAIN, deadline).facts if several else None
        server = self._servers.get((settings.inherited, several))
        if server is None or server.gone:
            server = ForkServerProcess(self.setup.environment(settings), self.setup.origin, self.loop)
            self._servers[settings.inherited, several] = server
            server.load(self.setup, self._script, facts, deadline)
            self._script = server.script
        return server

    def describe(self, *, steps: bool = True) -> TaskFacts:
        """Load the task and read its facts in a child.

        Args:
            steps: run the user's step, too, which alone shows if several processes may share the work.

        Raises:
            UserCodeError: the user's code failed while it was loaded, built or read.
        """
        if self.setup.script is not None:
            return self._describe_script(several=steps)
        trial = self.start(None, Timeouts(deadline=self.deadline))
        try:
            self._wait(trial, trial.has_events)
            if steps:
                trial.timeouts = replace(trial.timeouts, starting=STEP_SECONDS)
                self._wait(trial, partial(trial.has_events, 2))
        finally:
            self.stop(trial)
        if trial.events:
            return decoded(TaskFacts, trial.events[-1]["facts"])
        raise _user_code_error(self.setup.task, self.end(trial))

    def _describe_script(self, *, several: bool) -> TaskFacts:
        begun = time.monotonic()
        server = self.warm()
        script, facts = server.script, server.facts
        assert script is not None
        assert facts is not None
        now = time.monotonic()
        self.script_seconds = self.script_seconds or now - begun
        again = () if script == self.setup.script else (STARTED_AGAIN,)
        facts = replace(facts, warnings=(*again, *facts.warnings, *server.gaps), ranked=script.ranked)
        if script.line:
            return self._describe_launched(facts, script)
        if facts.why_not_several is not None or not several:
            return facts
        most = max(LEAST_SECONDS, MOST_SHARE * (self.deadline - now))
        if self.script_seconds > most:
            return replace(facts, why_not_several=NO_TIME.format(self.script_seconds))
        try:
            self._server(PLAIN.but(processes=2), min(self.deadline, now + most))
        except (NothingUsable, UserCodeError):
            return replace(facts, why_not_several=NOT_LOADED.format(time.monotonic() - now))
        facts = several_processes.shown(facts, partial(self._record_ranks, facts))
        for server in self._servers.values():
            if server.facts is not None:
                server.facts = replace(server.facts, compared=facts.compared)
        return facts

    def _describe_launched(self, facts: TaskFacts, script: Script) -> TaskFacts:
        """Return the facts of a ``script`` that the user starts by a launch line, of its number of processes.

        Raises:
            UserCodeError: it failed as so many processes.
        """
        own = {} if script.threads is None or self.setup.users_threads else {"threads": script.threads}
        facts = replace(facts, current={**own, **facts.current})
        if script.processes == 1:
            return replace(facts, why_not_several=several_processes.OWN_NUMBER)
        why_not = several_processes.UNDER_MPI if script.under_mpi else facts.why_not_several
        if why_not is None:
            recorded = self._record_ranks(facts, script.processes)
            if recorded.end is not None:
                raise _user_code_error(self.setup.task, recorded.end)
            why_not = several_processes.why_not_own(recorded.ranks)
        if why_not is not None:
            note = several_processes.MEASURED_ALONE.format(script.processes, why_not)
            own_number = several_processes.OWN_NUMBER
            return replace(facts, warnings=(note, *facts.warnings), why_not_several=own_number)
        return several_processes.as_launched(facts, recorded.ranks)

    @property
    def patience(self) -> float:
        """Return seconds without a sign of life that a script may take until it trains, by what it took itself."""
        return PATIENCE * self.script_seconds

    def _record_ranks(self, facts: TaskFacts, ranks: int) -> Recorded:
        """Run the script as so many ranks until all have shown how they train, or it hangs.

        Args:
            facts: of the script as one process.
            ranks: as many as its launch line starts, whose loaders have their share already; else they share its batch.
        """
        patience, batch = max(USUAL_PATIENCE, self.patience), facts.current["batch_size"]
        launched = self.setup.script is not None and self.setup.script.processes == ranks
        settings = Settings(processes=ranks, batch_size=batch if launched else batch // ranks)
        spec = TrialSpec(settings=settings, evidence=True, endless=False)
        trial = self.start(spec, Timeouts(starting=patience, stepping=patience, deadline=self.deadline))
        try:
            self._wait(trial, partial(trial.has_events, ranks))
            seconds = time.monotonic() - trial.requested_at
            found = [decoded(RankEvidence, event["evidence"]) for event in trial.events]
        finally:
            self.stop(trial)
        if ranks > 1:
            self.several_seconds = seconds
        ordered = tuple(sorted(found, key=lambda evidence: evidence.rank))
        return Recorded(ordered, None if len(ordered) == ranks else self.end(trial))

    def run(self, spec: TrialSpec, timeouts: Timeouts) -> TrialEnd:
        """Run a trial to its end. One that starts a script afresh fails alone if the script does not start again."""
        asked = time.monotonic()
        try:
            trial = self.start(spec, timeouts)
        except UserCodeError as error:
            if not self.script_seconds:
                raise
            late = "starting" if isinstance(error, NotInTime) else None
            words = f"{error.traceback}\n{error}".strip()
            return TrialEnd(None, (), 1, timed_out=late, log=words, seconds=time.monotonic() - asked)
        try:
            self._wait(trial, lambda: trial.ended)
        finally:
            self.stop(trial)
        return self.end(trial)

    def ready(self, trial: RunningTrial) -> bool:
        """Wait until a resident trial is warm, then pause it; False if it ended instead."""
        self._wait(trial, trial.has_events)
        trial.events.clear()
        trial.signal(signal.SIGSTOP)
        return not trial.ended

    def block(self, trial: RunningTrial, seconds: float) -> Block | None:
        """Measure one block of about ``seconds`` of a resident trial, paused before and after.

        Returns:
            None if it ended, or a loss was not finite.
        """
        if trial.ended:
            return None
        trial.signal(signal.SIGCONT)
        trial.last_sign_at = time.monotonic()
        with contextlib.suppress(OSError):
            trial.connection.send({"request": "block", "seconds": seconds})
        self._wait(trial, trial.has_events)
        trial.signal(signal.SIGSTOP)
        message = trial.events.popleft() if trial.events else None
        return Block(**message["block"]) if message is not None and message["finite"] else None

    def stop(self, trial: RunningTrial) -> None:
        """End a trial, whatever it is doing, and wait until nothing of it is left."""
        if not trial.ended:
            trial.server.send("kill", pid=trial.pid)
        self.loop.wait_until(lambda: trial.server.gone or trial.ended, KILL_SECONDS)
        if trial in self.trials:
            self.trials.remove(trial)
            trial.close()

    def end(self, trial: RunningTrial) -> TrialEnd:
        """Return how a stopped trial ended."""
        return trial.end(self.setup.oom_kills())

    def start(self, spec: TrialSpec | None, timeouts: Timeouts) -> RunningTrial:
        """Have a fork server start a trial, and return at once.

        Args:
            spec: of the trial; None if a task is described.
            timeouts: of the trial.
        """
        settings = spec.settings if spec is not None else PLAIN
        deadline = self.deadline
        if self.script_seconds:  # a script was started before: it need not take much longer now
            deadline = min(deadline, time.monotonic() + max(USUAL_PATIENCE, self.patience, timeouts.starting))
        server = self._server(settings, deadline)
        self.started += 1
        if not self.trials:
            server.forget_log()
        kills, requested_at = self.setup.oom_kills(), time.monotonic()
        ours, theirs = UnixConnection.pair()
        request = TrialRequest(
            task=str(self.setup.task),
            folder=str(self.setup.paths.trial(self.started)),
            origin=str(self.setup.origin),
            seed=self.setup.seed,
            spec=spec,
            binding="" if spec is None else self.setup.binding(settings).text,
            script=server.script,
            facts=server.facts,
        )
        reply = server.ask("start", REPLY_SECONDS, (theirs.fileno(),), trial=asdict(request))
        theirs.close()
        if reply is None:
            server.gone = True
            raise LaunchError(f"the trial server ended unexpectedly:\n{server.tail()}")
        trial = RunningTrial(server, ours, reply["pid"], timeouts, kills)
        trial.requested_at = requested_at
        trial.listen()
        self.trials.add(trial)
        return trial

    def _wait(self, trial: RunningTrial, done: Callable[[], bool]) -> None:
        """Sleep until ``done`` or the trial's end; a trial that hangs is ended."""
        wait(self.loop, trial, done)
        if trial.timed_out is not None and not trial.ended:
            self.stop(trial)


def _user_code_error(task: Path, end: TrialEnd) -> UserCodeError:
    """Return why the child could not describe ``task``."""
    report = end.report
    if report is not None and report.error_type is not None:
        return UserCodeError(f"{task}: {report.sentence}", report.traceback)
    return UserCodeError(f"{task}: the task could not be built: {how_it_ended(end).reason}", end.log)
