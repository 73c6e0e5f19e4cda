"""The parent's end of fork servers: how they are started, their replies, and the tail of what their trials print."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from autotune.decoding import decoded
from autotune.errors import LaunchError, NothingUsable, UserCodeError
from autotune.knobs.binding import AffinityPlan
from autotune.knobs.settings import Settings
from autotune.knobs.task_facts import TaskFacts
from autotune.scripts import adapters
from autotune.trial import process_tree
from autotune.trial.isolation.private import default_bytes
from autotune.trial.messages import TrialReport, UnixConnection
from autotune.trial.parent.judge import explain
from autotune.trial.paths import StudyPaths
from autotune.trial.process_tree import child_command
from autotune.trial.target import OUR_ONE, THREAD_VARIABLES, USERS_THREADS, Script

PART_SECONDS = 1.0
"""The longest sleep: a trial's own signs of life wake the tuner more often."""
PAUSE_SECONDS = 1.0
"""A sleep that lasts this much longer means that the process was stopped, or the clock jumped."""
COMPILE_WORKER_BYTES = int(1.5 * 2**30)
MAX_COMPILE_WORKERS = 8
TAIL_BYTES = 4096
LOAD_SECONDS = 120.0
SCRIPT_SECONDS = 600.0
"""A script may take this long to come to its training."""
STACK_SECONDS = 0.5
NO_STEP = "no training step within {:.0f} s{}. Give a longer --budget, or shorten what runs before training"
WAITS = (
    "no training step within {:.0f} s: the script waits for processes of its own, and training in those cannot be tuned"
    " yet. If they train, let torchrun start them"
)
WAITING = re.compile(r'multiprocessing/process\.py", line \d+ in join')
NOT_LOADED = "{}: the budget ended before it was imported and its dataset built: give a longer --budget"
LEAST_SECONDS = 1.0
EXIT_SECONDS = 5.0


class NotInTime(UserCodeError):
    """The script has not come to its training in the time that it had."""


class EventLoop:
    """Calls back for each file descriptor that can be read."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def add(self, fd: int, on_readable: Callable[[], object]) -> None:
        """Call ``on_readable`` whenever ``fd`` can be read or its other end is closed."""
        self._selector.register(fd, selectors.EVENT_READ, on_readable)

    def remove(self, fd: int) -> None:
        """Stop waiting for ``fd``, if that has not been done before."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(fd)

    def wait(self, seconds: float) -> float:
        """Sleep until something can be read, ``seconds`` or `PART_SECONDS` at most, and call back for all that can.

        Returns:
            Seconds by which the monotonic clock went further than that; 0 if it did not.
        """
        most = min(max(0.0, seconds), PART_SECONDS)
        began = time.monotonic()
        ready = self._selector.select(most)
        late = time.monotonic() - began - most
        for key, _ in ready:
            if key.fd in self._selector.get_map():  # an earlier callback may have removed it
                key.data()
        return late if late > PAUSE_SECONDS else 0.0

    def wait_until(self, done: Callable[[], bool], seconds: float) -> None:
        """Sleep and call back until ``done``, ``seconds`` at most."""
        deadline = time.monotonic() + seconds
        while not done() and (left := deadline - time.monotonic()) > 0:
            deadline += self.wait(left)

    def close(self) -> None:
        """Stop waiting for all descriptors."""
        self._selector.close()


def trial_environment(base: Mapping[str, str], paths: StudyPaths, *, threads: int, memory: int) -> dict[str, str]:
    """Return ``base`` (already free of other launchers' variables) with what trials need on top.

    Args:
        base: the user's environment, with the variables of settings that a process must start with.
        paths: the study's scratch folder.
        threads: CPU budget; bounds TorchInductor's compile pool.
        memory: memory limit in bytes; likewise.
    """
    compile_workers = max(1, min(threads, memory // COMPILE_WORKER_BYTES, MAX_COMPILE_WORKERS))
    return dict(base) | {
        # One thread each until a trial sets its own number: pools that exist before a fork hang after it.
        **dict.fromkeys(THREAD_VARIABLES, OUR_ONE),
        USERS_THREADS: " ".join(f"{name}={base[name]}" for name in THREAD_VARIABLES if base.get(name, "").isdigit()),
        # One machine: never a wrong interface, never a host name that does not resolve.
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        # Counting GPUs must not create a context, which forbids forking.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(paths.compile_cache),
        "TORCHINDUCTOR_COMPILE_THREADS": str(compile_workers),
        "TMPDIR": str(paths.root),
        **adapters.variables(paths.root / "trackers", network=True),
        "PYTHONDONTWRITEBYTECODE": "1",
        "AUTOTUNE_TRIAL": "1",
    }


@dataclass(frozen=True)
class TrialSetup:
    """The set-up of all trials of one task file or script.

    Attributes:
        task: the task file, or the script's.
        paths: scratch folder of the study.
        environment: environment of the fork server for what a process must start with.
        origin: the user's working folder, mirrored for each trial.
        seed: of data order and weights.
        script: how an unmodified script is started; None for a task file.
        binding: the CPUs of each process of settings on this machine.
    """

    task: Path
    paths: StudyPaths
    environment: Callable[[Settings], Mapping[str, str]]
    origin: Path
    seed: int = 0
    script: Script | None = None
    binding: Callable[[Settings], AffinityPlan] = lambda _: AffinityPlan()


class ForkServerProcess:
    """One living fork server. It leads a process group, which the terminal's Ctrl-C does not reach.

    Args:
        setup: of the trials.
        settings: of the first of them: the others start with the same variables.
        loop: calls back for its messages and its log.

    Raises:
        LaunchError: the process could not be started.

    Attributes:
        gone: True once it has ended.
        script: that it loads; None for a task file.
        facts: of that.
        on_exit: called with the exit code when a trial has ended, by the trial's pid.
    """

    def __init__(self, setup: TrialSetup, settings: Settings, loop: EventLoop) -> None:
        self.setup, self.loop = setup, loop
        self.gone = False
        self.no_fork_reason: str | None = None
        """Why trials load the user's code themselves; None if they are forked behind it."""
        self.script: Script | None = None
        self.facts: TaskFacts | None = None
        self.on_exit: dict[int, Callable[[int], None]] = {}
        self._replies: deque[dict[str, Any]] = deque()
        self._log, self._is_loading = b"", False
        self.connection, theirs = UnixConnection.pair()
        self.log_fd, write_end = os.pipe()
        os.set_blocking(self.log_fd, False)
        try:
            self.process = subprocess.Popen(
                child_command(str(theirs.fileno())),
                env=dict(setup.environment(settings)),
                cwd=setup.origin,
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
        loop.add(self.connection.fileno(), self._read_message)
        loop.add(self.log_fd, self._read_log)

    def send(self, request: str, fds: tuple[int, ...] = (), **content: Any) -> None:
        """Send a request; if the fork server is gone, no reply comes."""
        with contextlib.suppress(OSError):
            self.connection.send({"request": request, **content}, fds)

    def ask(self, request: str, seconds: float, fds: tuple[int, ...] = (), **content: Any) -> dict[str, Any] | None:
        """Return the reply to a request; None if the fork server is gone or silent for ``seconds``."""
        self.send(request, fds, **content)
        self.loop.wait_until(lambda: bool(self._replies) or self.gone, seconds)
        return self._replies.popleft() if self._replies else None

    def load(self, script: Script | None, facts: TaskFacts | None, deadline: float) -> None:
        """Load the task, or bring the ``script`` to its training.

        Args:
            script: how it is started; None for a task file.
            facts: of the script, for trials of several processes: they make their group before they train, so they
                cannot be forked where it trains; None for those of one.
            deadline: on the monotonic clock.

        Raises:
            UserCodeError: the task could not be imported or its dataset not built.
            NothingUsable: not by the ``deadline``.
        """
        self.script = script
        most = SCRIPT_SECONDS if script is not None else LOAD_SECONDS
        seconds = max(0.0, min(most, deadline - time.monotonic()))
        if script is not None and seconds < LEAST_SECONDS:
            self.kill()
            raise NothingUsable("the budget ended before the script was started: give a longer --budget")
        self._is_loading = True
        reply = self.ask(
            "load",
            seconds,
            task=str(self.setup.task),
            seed=self.setup.seed,
            scratch=str(self.setup.paths.root),
            script=None if script is None else asdict(script),
            facts=None if facts is None else asdict(facts),
        )
        self._is_loading = False
        if reply is None:
            raise self._silent(seconds, in_budget=seconds == most)
        if reply["error"] is not None:
            raise self._failed(decoded(TrialReport, reply["error"]))
        self.no_fork_reason = reply["no_fork_reason"]
        if script is not None:
            self.facts = decoded(TaskFacts, reply["facts"])
            self.no_fork_reason = self.facts.no_fork_reason
            self.script = replace(script, ranked=self.facts.ranked)

    def _silent(self, seconds: float, *, in_budget: bool) -> Exception:
        """End a fork server that has not answered for so many ``seconds``. Return why nothing was loaded."""
        task, script, timed_out = self.setup.task, self.script, not self.gone
        stacks = self.stacks(self.process.pid) if timed_out and script is not None else ""
        code = self.kill()
        if timed_out and script is not None:
            place = last_place(stacks, script.path.parent)
            words = WAITS.format(seconds) if WAITING.search(stacks) else NO_STEP.format(seconds, place)
            return NotInTime(f"{task}: {words}")
        if timed_out and not in_budget:
            return NothingUsable(NOT_LOADED.format(task))
        end = (
            f"was killed by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"ended with exit code {code}"
        )
        how = f"no end within {seconds:.0f} s" if timed_out else f"the process {end}"
        return UserCodeError(f"{task}: {how} while it was imported and its dataset built", self.tail())

    def _failed(self, error: TrialReport) -> UserCodeError:
        """Return the user's own ``error``, with advice if the isolation of trials may be its reason."""
        kind, lines = error.error_type or "", [f"{self.setup.task}: {error.sentence}"]
        if self.script is not None:
            why = explain(kind, error.error or "", network=self.script.network, limit=default_bytes())
            lines += [why] if why else []
        printed = self.tail() if kind == "SystemExit" else ""  # its traceback does not show why
        return UserCodeError("\n".join(lines), printed or error.traceback or self.tail())

    def forget_log(self) -> None:
        """Start a new log: what follows belongs to the next trial."""
        self._log = b""

    def tail(self) -> str:
        """Return the last lines printed."""
        self._read_log()
        return self._log.decode(errors="replace")

    def stacks(self, pid: int) -> str:
        """Return the log's end, after all processes below ``pid`` were asked for their stacks."""
        process_tree.send_signal(signal.SIGUSR1, process_tree.descendants(pid))
        self.loop.wait_until(lambda: self.gone, STACK_SECONDS)
        return self.tail()

    def kill(self) -> int:
        """End the fork server and everything below it at once; returns its exit code."""
        process_tree.kill_tree(self.process.pid)
        self.gone = True
        return self.process.wait()

    def close(self) -> None:
        """Ask the fork server to end everything below it and itself; kill it after a few seconds, and at once while the
        user's code runs in it."""
        self.send("exit")
        try:
            self.process.wait(timeout=0 if self._is_loading else EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        for fd in (self.connection.fileno(), self.log_fd):
            self.loop.remove(fd)
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
            self.on_exit.pop(message["pid"])(message["code"])

    def _read_log(self) -> None:
        """Keep the end of what was printed."""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self.log_fd, 65536)
            self._log = (self._log + data)[-TAIL_BYTES:]
            if not data:
                self.loop.remove(self.log_fd)


def last_place(stacks: str, folder: Path) -> str:
    """Return ``; it is in FUNCTION (FILE:LINE)`` for the innermost frame of a file in ``folder``, or nothing."""
    for file, line, function in re.findall(r'File "([^"]+)", line (\d+) in (\S+)', stacks):
        if Path(file).is_relative_to(folder):
            return f"; it is in {function} ({Path(file).name}:{line})"
    return ""
