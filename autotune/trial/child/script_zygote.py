"""The zygote of a script: it runs the script once, up to where it trains, and forks trials from there."""

from __future__ import annotations

import faulthandler
import json
import os
import random
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import torch.multiprocessing  # noqa: F401  # its spawn is replaced

from autotune.runtime.entry import as_main
from autotune.scripts.hooks import Hooks, Listener
from autotune.trial import process_tree
from autotune.trial.child import script_run
from autotune.trial.child.resume import Resume
from autotune.trial.child.scout import Frontier, Scout, leave
from autotune.trial.child.script_trial import LoadedScript
from autotune.trial.isolation.isolate import Isolation
from autotune.trial.script import Script
from autotune.trial.spec import TrialReport
from autotune.trial.unix_connection import UnixConnection
from autotune.trial.user_errors import error_report


class Server(Protocol):
    """`autotune.trial.child.zygote.Zygote`: starts trials when the tuner asks."""

    connection: UnixConnection
    scratch: Path
    task: Any

    def loaded(
        self, error: dict[str, Any] | None = None, no_fork_reason: str | None = None, frontier: Any = None
    ) -> None:
        """Tell the tuner that trials can start, or why not."""

    def serve(self) -> None:
        """Answer requests until the tuner says exit or goes away."""

    def shut_down(self) -> None:
        """Leave nothing behind."""


NO_TRAINING = (
    "the script came to its end without a training step that could be seen: no optimizer stepped, and no model of"
    " torch.nn was called in training, in this process"
)
VANISHED = "the script's process ended without a word before it trained"
SPAWNS = (
    "the script trains in processes that it starts itself (torch.multiprocessing.spawn), which cannot be tuned yet:"
    " let torchrun start them"
)
BUSY_SECONDS = 0.5
CHILDREN = " (it started processes of its own; training in those cannot be tuned yet)"


class ScriptZygote:
    """Brings a script to its frontier.

    Args:
        zygote: the server that is to start the trials.
        script: the user's.
        users_threads: ``OMP_NUM_THREADS`` of the user's environment; empty where it is not set.
        why_not_fork: why a fork now is not safe, or None.
    """

    def __init__(
        self, zygote: Server, script: Script, users_threads: str, why_not_fork: Callable[[], str | None]
    ) -> None:
        self.zygote, self.script, self.users_threads, self.why_not_fork = zygote, script, users_threads, why_not_fork
        self.hooks = Hooks()
        self._news: int = -1
        self._isolation: Isolation | None = None
        self._script_ended: Callable[[Any], int] = lambda ended: 1

    def load(self) -> None:
        """Run the script in a child. Whoever can serve trials then answers the tuner: a process that stands at the
        frontier, while this one guards it; or this one, whose trials run the script from its start."""
        news, self._news = os.pipe()
        if os.fork() == 0:
            os.close(news)
            self._run()
        os.close(self._news)
        with open(news, "rb") as pipe:
            told = pipe.readline()
        message = json.loads(told) if told else {"error": asdict(_report(VANISHED))}
        if "serves" in message:
            self._guard()
        elif "error" in message:
            self.zygote.loaded(error=message["error"])
        else:
            self.serve_from_start(Frontier(**message))

    def _run(self) -> None:
        """The script, in a child of the zygote or in one of a scout."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        faulthandler.register(signal.SIGUSR1, all_threads=False)
        sys.modules["torch.multiprocessing.spawn"].start_processes = _refuse_processes  # type: ignore[attr-defined]
        self._isolation = script_run.enter_isolation(self.script, self.zygote.scratch)
        self.zygote.scratch = Path()  # the guard removes it: mounts keep this process from it
        scout = Scout(self.script, self.hooks, self.why_not_fork, self._serve, self._found, self.users_threads)
        self.hooks.listener = scout
        self.hooks.look_at_calls()
        ended = script_run.run(self.script, self.hooks)
        if self.hooks.listener is not scout:
            leave(self._script_ended(ended))
        children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        started = CHILDREN if children > BUSY_SECONDS else ""
        report = error_report(ended.failure) if ended.failure else _report(NO_TRAINING + started)
        as_main.flush()
        self._tell({"error": asdict(report)})
        leave(1)

    def _serve(self, frontier: Frontier) -> Listener:
        """Start trials from where the script stands now. Returns in trials only: what watches them."""
        self._tell({"serves": True})
        os.close(self._news)
        handlers = {number: signal.getsignal(number) for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)}
        zygote = self.zygote
        process_tree.become_subreaper()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        zygote.task = LoadedScript(self.script, frontier, self.hooks, self._isolation, random.getstate())
        zygote.loaded(frontier=asdict(frontier), no_fork_reason=None)
        try:
            zygote.serve()
        except Resume as resume:
            for number, handler in handlers.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)
            listener: Listener = resume.listener
            self.hooks.listener, self._script_ended = listener, resume.script_ended
            self.hooks.ignore_calls()
            return listener
        except OSError:
            pass  # the tuner is gone
        zygote.shut_down()
        leave()
        raise AssertionError  # not reached

    def _found(self, frontier: Frontier) -> None:
        self._tell(asdict(frontier))

    def _tell(self, message: Mapping[str, Any]) -> None:
        os.write(self._news, json.dumps(message).encode() + b"\n")

    def _guard(self) -> None:
        """Wait until the process at the frontier, and with it everything below, has ended."""
        self.zygote.connection.close()
        while True:
            try:
                os.wait()
            except ChildProcessError:
                sys.exit()

    def serve_from_start(self, frontier: Frontier) -> None:
        """Trials run the script from its start, as far as possible with its imports done."""
        if self.why_not_fork() is None:  # else each trial isolates itself
            if os.fork():
                self._guard()
            process_tree.become_subreaper()
            scratch, self.zygote.scratch = self.zygote.scratch, Path()  # the guard removes it
            self._isolation = isolation = script_run.enter_isolation(self.script, scratch)
            if _is_safe(lambda: script_run.preload(self.script), self.why_not_fork, isolation, scratch / "preload"):
                script_run.preload(self.script)
        self.zygote.task = LoadedScript(self.script, frontier, None, self._isolation)
        self.zygote.loaded(frontier=asdict(frontier), no_fork_reason=self.why_not_fork())


def _is_safe(
    work: Callable[[], None], why_not_fork: Callable[[], str | None], isolation: Isolation, folder: Path
) -> bool:
    """Whether a process that has done ``work`` can still be forked: tried in a child, which writes to ``folder``."""
    pid = os.fork()
    if pid == 0:
        safe = False
        try:
            isolation.nest(folder)
            work()
            safe = why_not_fork() is None
        finally:
            os._exit(not safe)
    _, status = os.waitpid(pid, 0)
    return status == 0


def _refuse_processes(*_: object, **__: object) -> None:
    raise RuntimeError(SPAWNS)


def _report(text: str) -> TrialReport:
    """An error that is not an exception of the user's code, and has no traceback."""
    return TrialReport(error=text, error_type="RuntimeError")
