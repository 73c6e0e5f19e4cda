"""The parent's side of trials: starts them through fork servers, waits for them, and records how each ended.

A `RunningTrial` holds its messages, its signs of life and its processes.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import time
from collections import deque
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from autotune.decoding import decoded
from autotune.errors import LaunchError, NothingUsable, UserCodeError
from autotune.knobs.settings import Settings
from autotune.knobs.task_facts import TaskFacts
from autotune.probes.memory import oom_kills
from autotune.probes.system import System
from autotune.stats.measurement import Block
from autotune.stats.outcome import BUDGET_OVER, Outcome
from autotune.trial.messages import RankEvidence, TrialReport, TrialSpec, UnixConnection
from autotune.trial.parent import several_processes
from autotune.trial.parent.fork_servers import EventLoop, ForkServerProcess, NotInTime, TrialSetup
from autotune.trial.parent.judge import TrialEnd, how_it_ended, judge, most_informative
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
    comparing: float = 60.0
    deadline: float = float("inf")
    """On the monotonic clock."""


class RunningTrial(contextlib.AbstractContextManager["RunningTrial"]):
    """A trial until nothing of it is left. Made by `Runner.start`; the end of a ``with`` block ends it.

    Attributes:
        events: messages that wait: facts of the task, evidence of ranks, or signs of a resident trial.
        end: what is known of its processes; complete after the ``with`` block.
        last: what its last turn showed; None if it ended.
    """

    last: Outcome | None = None

    def __init__(self, server: ForkServerProcess, timeouts: Timeouts) -> None:
        self.server, self.timeouts = server, timeouts
        self.requested_at = self.last_sign_at = time.monotonic()
        self.phase, self.pid = "starting", 0
        self.events: deque[dict[str, Any]] = deque()
        self.end = TrialEnd()
        self._reports: list[TrialReport] = []
        self._groups: list[int] = []
        self._kills_before = oom_kills(System())

    def begin(self, spec: TrialSpec) -> None:
        """Have the fork server start it, and take its messages as they come.

        Raises:
            LaunchError: the fork server has ended.
        """
        server = self.server
        self.connection, theirs = UnixConnection.pair()
        reply = server.ask("start", REPLY_SECONDS, (theirs.fileno(),), trial=asdict(spec))
        theirs.close()
        if reply is None:
            server.gone = True
            self.connection.close()
            raise LaunchError(f"the trial server ended unexpectedly:\n{server.tail()}")
        self.pid = reply["pid"]
        self._groups.append(self.pid)
        self.last_sign_at = time.monotonic()
        server.loop.add(self.connection.fileno(), self._read)
        server.on_exit[self.pid] = self._exited

    def __exit__(self, *_: object) -> None:
        """End it, whatever it is doing, and complete the record of its end."""
        self.close()

    def close(self) -> None:
        """End it, if that has not been done before, and complete the record of its end."""
        if self.connection.socket.fileno() < 0:
            return
        self._kill()
        self.server.loop.remove(self.connection.fileno())
        self.server.on_exit.pop(self.pid, None)
        self.connection.close()
        kills, before = oom_kills(System()), self._kills_before
        self.end.oom_kills = kills - before if kills is not None and before is not None else None
        self.end.report = most_informative(self._reports)
        self.end.log = self.server.tail()
        self.end.seconds = time.monotonic() - self.requested_at

    @property
    def ended(self) -> bool:
        """Return True once the whole process tree is gone."""
        return self.end.code is not None

    @property
    def is_over(self) -> bool:
        """Return True if the script came to its own end: it trained no longer, or it exited with a code of its own."""
        report = most_informative(self._reports)
        by_itself = self.ended and self.end.timed_out is None
        return by_itself and (report.over if report is not None else (self.end.code or 0) >= 0)

    def wait(self, events: float = math.inf) -> None:
        """Sleep until so many ``events`` wait, or the trial's end. If it hangs before, it is ended."""
        while len(self.events) < events and not self.ended:
            patient_until = self.last_sign_at + getattr(self.timeouts, self.phase)
            left = min(patient_until, self.timeouts.deadline) - time.monotonic()
            if left <= 0:
                over = time.monotonic() >= self.timeouts.deadline
                self.end.timed_out = BUDGET_OVER if over else self.phase
                if not over:  # every rank writes to the log where it is stuck
                    self.server.stacks(self.pid)
                self._kill()
                return
            if self.server.loop.wait(left):
                self.last_sign_at = time.monotonic()  # if all stood still, or the clock jumped, nothing hangs
            if self.server.gone and not self.ended:
                self.end.code = self.server.process.wait()

    def ready(self) -> bool:
        """Wait until this resident trial is warm, then pause it; False if it ended instead."""
        self.wait(1)
        self.events.clear()
        self._signal(signal.SIGSTOP)
        return not self.ended

    def turn(self, seconds: float, settings: Settings | None = None) -> Outcome | None:
        """Measure one block of about ``seconds`` of this resident trial, paused before and after; a live one changes to
        ``settings`` before. Return what the block showed; None if the trial ended."""
        self.last = self._asked("block", seconds=seconds, settings=None if settings is None else settings.as_dict())
        return self.last

    def compare(self, settings: Settings, reference: Settings) -> Outcome | None:
        """Compare first steps inside this live trial. Return `Compared`, or how it failed; None if the trial ended."""
        return self._asked("compare", settings=settings.as_dict(), reference=reference.as_dict())

    def _asked(self, request: str, **content: Any) -> Outcome | None:
        """Return what this paused trial reports at a request."""
        if self.ended:
            return None
        self._signal(signal.SIGCONT)
        self.last_sign_at = time.monotonic()
        with contextlib.suppress(OSError):
            self.connection.send({"request": request, **content})
        self.wait(1)
        self._signal(signal.SIGSTOP)
        if not self.events:
            return None
        return judge(TrialEnd(code=0, report=decoded(TrialReport, self.events.popleft()["report"])))

    def block(self, seconds: float, settings: Settings | None = None) -> Block | None:
        """Return the block of a `turn`; None if the trial ended, or the settings failed."""
        outcome = self.turn(seconds, settings)
        measured = None if outcome is None else outcome.measurement
        return None if measured is None else measured.blocks[0]

    def record(self, message: dict[str, Any]) -> None:
        """Record a message."""
        self.last_sign_at = time.monotonic()
        event = message["event"]
        if event == "rank-started":
            self._groups.append(message["pid"])
        elif event == "phase":
            self.phase = message["phase"]
            if message.get("first_step"):
                self.end.start_seconds = self.last_sign_at - self.requested_at
        elif event == "report":
            self._reports.append(decoded(TrialReport, message["report"]))
        elif event == "rank-ended":
            self.end.rank_codes += (message["code"],)
        else:
            self.events.append(message)

    def _signal(self, signum: int) -> None:
        """Send ``signum`` to the trial's process groups."""
        for group in self._groups if not self.ended else ():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, signum)

    def _kill(self) -> None:
        """End all of its processes, if any is left."""
        if not self.ended:
            self.server.send("kill", pid=self.pid)
            self.server.loop.wait_until(lambda: self.server.gone or self.ended, KILL_SECONDS)

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

    def _exited(self, code: int) -> None:
        """Record what it sent before, and then how it ended: its process tree is gone."""
        self.connection.socket.setblocking(False)
        while self._read():
            pass
        self.end.code = code


class Runner(contextlib.AbstractContextManager["Runner"]):
    """Starts trials of one task file or script. The end of a ``with`` block ends all that it has started."""

    def __init__(self, setup: TrialSetup) -> None:
        self.setup = setup
        self.loop = EventLoop()
        self.started = 0
        self.deadline = float("inf")
        """End of the whole budget on the monotonic clock; bounds what has no timeouts of its own."""
        self.script_seconds = 0.0
        """From the start of a script until it trained; 0 for a task file."""
        self.at_end = contextlib.ExitStack()
        """Closed before all fork servers are."""
        self.several_seconds = 0.0
        """What several processes of a script take until they have trained a few steps."""
        self._script = setup.script
        """How it is started; as torchrun does it once it is known that it does not start otherwise."""
        self._servers: dict[tuple[tuple[Any, ...], bool], ForkServerProcess] = {}
        """By what their trials must start with, and if those are several processes of a script."""

    def __exit__(self, *_: object) -> None:
        """End all fork servers, with what runs below them, and remove the scratch folder."""
        self.at_end.close()
        for server in self._servers.values():
            server.close()
        self._servers.clear()
        self.loop.close()
        self.setup.paths.remove()

    def warm(self) -> ForkServerProcess:
        """Return the fork server for most settings, started and loaded if need be.

        Raises:
            UserCodeError: the task could not be imported or its dataset not built.
        """
        return self._server(PLAIN, self.deadline)

    @property
    def no_fork_reason(self) -> str | None:
        """Return why a trial cannot be forked where training begins; None if it can, or if nothing was loaded."""
        server = self._servers.get((PLAIN.inherited, False))
        return None if server is None else server.no_fork_reason

    def _server(self, settings: Settings, deadline: float) -> ForkServerProcess:
        """Return the fork server for trials with ``settings``, started and loaded by the ``deadline`` if need be; see
        `ForkServerProcess.load` for what it may raise."""
        several = settings.processes > 1 and self._script is not None
        facts = self._server(PLAIN, deadline).facts if several else None
        server = self._servers.get((settings.inherited, several))
        if server is None or server.gone:
            if server is not None:
                server.close()
            server = ForkServerProcess(self.setup, settings, self.loop)
            self._servers[settings.inherited, several] = server
            server.load(self._script, facts, deadline)
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
        spec = TrialSpec(settings=PLAIN, seed=self.setup.seed, describe=True)
        with self.start(spec, Timeouts(deadline=self.deadline)) as trial:
            trial.wait(1)
            if steps:
                trial.timeouts = replace(trial.timeouts, starting=STEP_SECONDS)
                trial.wait(2)
        if trial.events:
            return decoded(TaskFacts, trial.events[-1]["facts"])
        raise _user_code_error(self.setup.task, trial.end)

    def _describe_script(self, *, several: bool) -> TaskFacts:
        begun = time.monotonic()
        server = self.warm()
        script, facts = server.script, server.facts
        assert script is not None
        assert facts is not None
        now = time.monotonic()
        self.script_seconds = self.script_seconds or now - begun
        again = () if script == self.setup.script else (STARTED_AGAIN,)
        facts = replace(facts, warnings=(*again, *facts.warnings))
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
        """Return the facts of a ``script`` that the user starts by a launch line, of its number of processes. Raise
        `UserCodeError` if it failed as so many."""
        own = {} if script.threads is None or os.environ.get("OMP_NUM_THREADS") else {"threads": script.threads}
        facts = replace(facts, current={**own, **facts.current})
        if script.processes == 1:
            return replace(facts, why_not_several=several_processes.OWN_NUMBER)
        why_not = several_processes.UNDER_MPI if script.launcher == "mpiexec" else facts.why_not_several
        if why_not is None:
            ranks = self._record_ranks(facts, script.processes)
            if isinstance(ranks, TrialEnd):
                raise _user_code_error(self.setup.task, ranks)
            why_not = several_processes.why_not_own(ranks)
            if why_not is None:
                return several_processes.as_launched(facts, ranks)
        note = several_processes.MEASURED_ALONE.format(script.processes, why_not)
        return replace(facts, warnings=(note, *facts.warnings), why_not_several=several_processes.OWN_NUMBER)

    @property
    def patience(self) -> float:
        """Return seconds without a sign of life that a script may take until it trains, by what it took itself."""
        return PATIENCE * self.script_seconds

    def _record_ranks(self, facts: TaskFacts, ranks: int) -> Recorded:
        """Run the script as so many ranks until all have shown how they train, or it hangs. If its launch line starts
        as many, their loaders have their share already; else they share the batch of one process, as in ``facts``."""
        patience, batch = max(USUAL_PATIENCE, self.patience), facts.current["batch_size"]
        launched = self.setup.script is not None and self.setup.script.processes == ranks
        settings = Settings(processes=ranks, batch_size=batch if launched else batch // ranks)
        spec = TrialSpec(settings=settings, evidence=True)
        timeouts = Timeouts(starting=patience, stepping=patience, deadline=self.deadline)
        with self.start(spec, timeouts) as trial:
            trial.wait(ranks)
            seconds = time.monotonic() - trial.requested_at
        if ranks > 1:
            self.several_seconds = seconds
        found = [decoded(RankEvidence, event["evidence"]) for event in trial.events]
        return sorted(found, key=lambda evidence: evidence.rank) if len(found) == ranks else trial.end

    def run(self, spec: TrialSpec, timeouts: Timeouts) -> TrialEnd:
        """Run a trial to its end. One that starts a script afresh fails alone if the script does not start again."""
        asked = time.monotonic()
        try:
            trial = self.start(spec, timeouts)
        except (UserCodeError, NothingUsable) as error:
            return self.not_started(error, asked)
        with trial:
            trial.wait()
        return trial.end

    def not_started(self, error: UserCodeError | NothingUsable, asked: float) -> TrialEnd:
        """Return the end of a trial that was ``asked`` for then, and whose script did not start again. Raise the
        ``error`` if it never has."""
        if not self.script_seconds:
            raise error
        late = None
        if isinstance(error, NotInTime | NothingUsable):
            late = "starting" if isinstance(error, NotInTime) and time.monotonic() < self.deadline else BUDGET_OVER
        words = f"{getattr(error, 'traceback', '')}\n{error}".strip()
        return TrialEnd(code=1, timed_out=late, log=words, seconds=time.monotonic() - asked)

    def start(self, spec: TrialSpec, timeouts: Timeouts) -> RunningTrial:
        """Have a fork server start a trial, and return at once."""
        deadline = self.deadline
        if self.script_seconds:  # a script was started before: it need not take much longer now
            deadline = min(deadline, time.monotonic() + max(USUAL_PATIENCE, self.patience, timeouts.starting))
        server = self._server(spec.settings, deadline)
        if not server.on_exit:  # none of its trials runs
            server.forget_log()
        self.started += 1
        trial = RunningTrial(server, timeouts)
        folder, binding = self.setup.paths.trial(self.started), self.setup.binding(spec.settings)
        trial.begin(replace(spec, folder=str(folder), binding=binding.text, facts=server.facts))
        return trial


def _user_code_error(task: Path, end: TrialEnd) -> UserCodeError:
    """Return why the child could not describe ``task``."""
    report = end.report
    if report is not None and report.error_type is not None:
        return UserCodeError(f"{task}: {report.sentence}", report.traceback)
    return UserCodeError(f"{task}: the task could not be built: {how_it_ended(end).reason}", end.log)
