"""The server that starts trials: imports torch and the user's code once, then forks one launcher per trial.

A task file is imported and its dataset built, a script is run up to where it trains (see `probe_run`), in a child: what
comes before is done once for all trials. Forking is safe only while a process has one thread and no CUDA context. If
that does not hold there, trials are forked from this process, load the user's code themselves, and report why. The fork
server is also the guard: it is the subreaper of everything below it and ends all of it when the tuner goes away,
however that happens.

Requests: load, start, kill, exit. Replies: loaded, started, exited.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import random
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch.multiprocessing  # noqa: F401  # so that scripts find its functions replaced
from torch.optim import Optimizer

from autotune.decoding import decoded
from autotune.knobs.task_facts import TaskFacts
from autotune.scripts.hooks import Hooks, Listener
from autotune.trial import process_tree
from autotune.trial.child import launcher, probe_run, rank, shm, task  # noqa: F401  # ranks find their imports done
from autotune.trial.child.probe_run import ProbeRun, leave, why_not_fork
from autotune.trial.child.script_trial import LoadedScript
from autotune.trial.child.task import LoadedTask
from autotune.trial.isolation.isolate import Isolation, isolate
from autotune.trial.messages import Resume, TrialReport, TrialSpec, UnixConnection, error_report
from autotune.trial.paths import SCRATCH_PREFIX
from autotune.trial.target import Script

CLEAN_SECONDS = 2.0
VANISHED = "its process ended by os._exit({}) before it trained"
KILLED = "its process was killed by {} before it trained"


class ForkServer:
    """State of the server between requests."""

    def __init__(self, connection: UnixConnection) -> None:
        self.connection = connection
        self.task: LoadedTask | LoadedScript | Path = Path()
        """The user's code as far as it is loaded: of a task file that forbids forks, its path."""
        self.scratch = Path()
        self.trials: dict[int, Path] = {}
        """Folders of the living trials, by their launcher's pid."""
        self.spared: frozenset[int] = frozenset()
        """What the user's module started on import belongs to it, as in training: it is not a leftover of a trial."""

    def load(self, request: dict[str, Any]) -> None:
        """Load the user's code as far as possible, and report if it can be forked there."""
        self.scratch, self.task = Path(request["scratch"]), Path(request["task"])
        task.warm_lazy_imports()
        if request["script"] is None:
            Loading(self).load_task(self.task, request["seed"])
            return
        script = ScriptLoading(self, decoded(Script, request["script"]))
        if request["facts"] is None:
            script.load()
        else:
            script.serve_several(decoded(TaskFacts, request["facts"]))

    def loaded(self, error: Any = None, no_fork_reason: str | None = None) -> None:
        """Report that trials can start, with what is known of a script, or why not."""
        self.spared = frozenset(process_tree.descendants(os.getpid()))
        facts = None
        if isinstance(self.task, LoadedScript):
            warnings = (*self.task.facts.warnings, *self.task.isolation.gaps)
            facts = asdict(replace(self.task.facts, warnings=warnings, ranked=self.task.script.ranked))
        self._reply("loaded", error=error, no_fork_reason=no_fork_reason, facts=facts)

    def start(self, spec: TrialSpec, fd: int) -> None:
        """Start one trial. Its launcher is connected to the tuner by descriptor ``fd``."""
        if pid := os.fork():
            os.close(fd)
            self.trials[pid] = Path(spec.folder)
            self._reply("started", pid=pid)
            return
        with launcher.exit_on_error():
            self.connection.close()
            _handle_signals_as_usual()
            os._exit(launcher.Launcher(spec, UnixConnection.from_fd(fd), self.task).run())

    def _reply(self, what: str, **content: Any) -> None:
        self.connection.send({"reply": what, **content})

    def collect(self) -> None:
        """Reap ended children. After a launcher's end nothing of its trial stays."""
        for pid, status in process_tree.reap():
            folder = self.trials.pop(pid, None)
            if folder is None:
                continue
            running = set(self.trials).union(*map(process_tree.descendants, self.trials))
            orphans = process_tree.descendants(os.getpid()) - running - self.spared
            for orphan in shm.end(orphans):
                process_tree.kill_tree(orphan)
            shm.remove(folder)
            if not any(map(shm.is_manager, orphans)):  # their sockets are in there
                shutil.rmtree(folder, ignore_errors=True)
            code = os.waitstatus_to_exitcode(status)
            self._reply("exited", pid=pid, code=code)

    def serve(self) -> None:
        """Answer requests until the tuner asks for the end or goes away."""
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
            self.start(decoded(TrialSpec, message["trial"]), fds[0])
        elif message["request"] == "kill" and (pid := message["pid"]) in self.trials:
            shm.end(process_tree.descendants(pid) | {pid})
            process_tree.kill_tree(pid)

    def shut_down(self) -> None:
        """Leave nothing behind: processes, shared memory, files."""
        below = process_tree.descendants(os.getpid()) - self.spared
        shm.end(below)
        shm.wait_for_managers(below)
        process_tree.kill_tree(os.getpid(), include_root=False)
        for folder in self.trials.values():
            shm.remove(folder)
        give_up = time.monotonic() + CLEAN_SECONDS
        while self.scratch.name.startswith(SCRATCH_PREFIX) and self.scratch.exists() and time.monotonic() < give_up:
            # Other fork servers of the run remove it at the same time, and one of them may fail.
            shutil.rmtree(self.scratch, ignore_errors=True)


def _handle_signals_as_usual() -> None:
    """Undo what `ForkServer.serve` and `main` have done, in a forked child."""
    signal.set_wakeup_fd(-1)
    for signum in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(signum, signal.SIG_DFL)


class Loading:
    """Has a child load the user's code. The process that can serve trials then answers the tuner: one below this one,
    which this one guards; or this one, whose trials load the code themselves. So no process is forked that has threads
    or a context of a device.
    """

    def __init__(self, server: ForkServer) -> None:
        self.server = server
        self._news = -1

    def load_task(self, path: Path, seed: int) -> None:
        """Import a task file and build its dataset."""
        message = self._first_message(partial(self._load_task, path, seed))
        if "serves" in message:
            self._guard()
        self.server.loaded(**message)

    def _load_task(self, path: Path, seed: int) -> None:
        try:
            loaded = task.load(path)
            loaded.build_dataset(seed)
        except BaseException as failure:
            self._send({"error": asdict(error_report(failure))})
        else:
            if reason := why_not_fork():
                self._send({"no_fork_reason": reason})
            else:
                self._serve_here(loaded)
        leave()

    def _first_message(self, run: Callable[[], None]) -> dict[str, Any]:
        """Fork a child that does ``run`` as any script, and does not return. Return its first message, or how it ended
        without one."""
        news, self._news = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(news)
            _handle_signals_as_usual()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            faulthandler.register(signal.SIGUSR1, all_threads=False)  # asks for its stack
            run()
        os.close(self._news)
        with open(news, "rb") as pipe:
            line = pipe.readline()
        found: dict[str, Any] = json.loads(line) if line else {"error": asdict(_vanished(child))}
        return found

    def _send(self, message: Mapping[str, Any]) -> None:
        os.write(self._news, json.dumps(message).encode() + b"\n")

    def _serve_here(self, loaded: LoadedTask | LoadedScript) -> None:
        """Start trials in this process until the tuner is gone."""
        self._send({"serves": True})
        os.close(self._news)
        process_tree.become_subreaper()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.server.task = loaded
        self.server.loaded()
        with contextlib.suppress(OSError):  # the tuner is gone
            self.server.serve()
        self.server.shut_down()
        leave()

    def _guard(self) -> None:
        """Wait until the process that serves, and with it everything below, has ended."""
        self.server.connection.close()
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()
        sys.exit()


class ScriptLoading(Loading):
    """Brings the user's ``script`` to its fork point, and has ``server`` start trials there."""

    def __init__(self, server: ForkServer, script: Script) -> None:
        super().__init__(server)
        self.script, self.hooks = script, Hooks()
        self._isolation: Isolation

    def load(self) -> None:
        """Run the script up to its fork point; if it has none, its trials run it from its start.

        A script that ends because it misses what torchrun sets is started again, as torchrun starts one process."""
        message = self._first_message(self._run)
        if message.get("needs_torchrun") and not self.script.ranked:
            self.script = replace(self.script, ranked=True)
            message = self._first_message(self._run)
        if "serves" in message:
            self._guard()
        elif "error" in message:
            self.server.loaded(error=message["error"])
        else:
            self._isolate()
            self._serve_from_start(decoded(TaskFacts, message))

    def _run(self) -> None:
        """Run the script, in a child of the fork server or in one of a probe run."""
        self._isolation = isolate(self.server.scratch, network=self.script.network)
        self.server.scratch = Path()  # the guard removes it: mounts keep this process from it
        self.hooks.listener = probe = ProbeRun(self.script, self.hooks, self._serve, self._send)
        spawning: Any = sys.modules["torch.multiprocessing.spawn"]
        spawning.start_processes = lambda *_, **__: probe.trains_elsewhere()
        self.hooks.look_at_calls()
        probe_run.before_forks_are_unsafe(probe.keep_copy)
        ended = probe_run.run(self.script, self.hooks)
        leave(self.hooks.listener.script_ended(ended))  # the trial's, if one has begun meanwhile

    def _serve(self, facts: TaskFacts, skip: int) -> None:
        """Start trials at the present place of the script, ``skip`` loaders before its training loader. Return only in
        trials, which the hooks report to."""
        handlers = {number: signal.getsignal(number) for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)}
        try:
            self._serve_here(LoadedScript(self.script, facts, skip, self._isolation, self.hooks, random.getstate()))
        except Resume as resume:
            for number, handler in handlers.items():
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)
            self.hooks.listener = resume.listener
            self.hooks.ignore_calls()

    def serve_several(self, facts: TaskFacts) -> None:
        """Serve trials of several processes from where the script first reads its rank; else from its start."""
        self._isolate()
        if "serves" in self._first_message(partial(self._run_to_rank, facts)):
            self._guard()
        self._serve_from_start(facts)

    def _run_to_rank(self, facts: TaskFacts) -> None:
        """Run the script until it reads its rank, and serve trials there; leave if it cannot be forked, or ends."""

        def serve() -> None:
            if why_not_fork():
                leave()
            self._serve(facts, facts.skip)

        self.hooks.listener = _Leaves()
        ended = probe_run.run(self.script, self.hooks, serve)
        leave(self.hooks.listener.script_ended(ended))

    def _isolate(self) -> None:
        """Isolate all that follows from the user's files, in a process below this one."""
        if os.fork():
            self._guard()
        process_tree.become_subreaper()
        scratch, self.server.scratch = self.server.scratch, Path()  # the guard removes it
        self._isolation = isolate(scratch, network=self.script.network)

    def _serve_from_start(self, facts: TaskFacts) -> None:
        """Serve trials that run the script from its start."""
        self.server.task = LoadedScript(self.script, facts, facts.skip, self._isolation)
        self.server.loaded()


class _Leaves(Listener):
    """Ends a script that trains without having read its rank."""

    def before_step(self, optimizer: Optimizer) -> None:
        """Leave."""
        leave()


def _vanished(child: int) -> TrialReport:
    """Return the report of how a process ended that has sent nothing."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    text = KILLED.format(signal.Signals(-code).name) if code < 0 else VANISHED.format(code)
    return TrialReport(error=text, error_type="")


def main(arguments: list[str]) -> None:
    """Serve as the server process; ``arguments[0]`` is the descriptor of its connection."""
    process_tree.lead_group()
    process_tree.leave_terminal()
    process_tree.die_with_parent(signal.SIGTERM)
    process_tree.become_subreaper()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    server = ForkServer(UnixConnection.from_fd(int(arguments[0])))
    with contextlib.suppress(OSError, SystemExit):
        server.serve()
    while True:
        # The death signal may arrive in the middle of cleaning up: then clean up again.
        with contextlib.suppress(SystemExit):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            server.shut_down()
            os._exit(0)
