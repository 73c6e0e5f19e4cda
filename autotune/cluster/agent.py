"""One of the other machines of a tuning run: starts its part of every trial, as the controller says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.cluster.handshake import connect, identity
from autotune.cluster.rendezvous import Rendezvous
from autotune.errors import LaunchError, UserCodeError
from autotune.probes.inventory import probe
from autotune.trial import spec
from autotune.trial.parent.runner import Runner
from autotune.trial.parent.running_trial import RunningTrial, Timeouts
from autotune.trial.parent.tcp_connection import TcpConnection
from autotune.trial.task_file import recognise
from autotune.tuning.events import Observer, StageStarted
from autotune.tuning.host_runner import open_runner
from autotune.tuning.host_signals import check_not_a_rank

NO_LIMITS = Timeouts(float("inf"), float("inf"), float("inf"))
"""The controller watches: only rank 0 shows signs of life."""
IDLE_SECONDS = 3600.0


def serve(task: Path, rendezvous: Rendezvous, patience: float, observe: Observer) -> None:
    """Take part in the run that the machine at ``rendezvous`` controls, until it ends.

    Args:
        task: this machine's copy of the task file.
        rendezvous: where the machines meet.
        patience: seconds to wait for it, and for another run on this machine to end.
        observe: called with every event.

    Raises:
        AutotuneError: the controller was not found, refused this machine or is gone, or the task cannot be loaded.
        Interrupted: on SIGINT or SIGTERM.
    """
    check_not_a_rank()
    file, inventory = recognise(task), probe()
    observe(StageStarted(f"waiting for the machine at {rendezvous.endpoint}"))
    connection, seed = connect(rendezvous, identity(file.path, inventory), patience)
    with open_runner(file, inventory, seed, patience, observe) as runner:
        try:
            runner.warm()
        except UserCodeError as error:
            connection.send({"failed": str(error), "traceback": error.traceback})
            raise
        connection.send({"loaded": True})
        observe(StageStarted(f"running trials as {rendezvous.host} says"))
        _Agent(runner, connection, rendezvous).serve()
    observe(StageStarted("the run has ended"))


class _Agent:
    def __init__(self, runner: Runner, connection: TcpConnection, rendezvous: Rendezvous) -> None:
        self.runner, self.connection, self.rendezvous = runner, connection, rendezvous
        self.trials: dict[int, RunningTrial] = {}
        """By the controller's number."""
        self.done = False

    def serve(self) -> None:
        """Obey until the run ends."""
        # Only read there: starting a trial waits in the same loop.
        self.runner.loop.add(self.connection.fileno(), self.connection.read)
        while not self.done:
            self.runner.loop.wait(IDLE_SECONDS)
            while self.connection.inbox:
                self._obey(self.connection.inbox.popleft())
            if self.connection.closed and not self.done:
                raise LaunchError(f"the run at {self.rendezvous.endpoint} ended without notice: see the screen there")
            for number, trial in list(self.trials.items()):
                if trial.ended or trial.zygote.gone:
                    self._end(number, trial)

    def _obey(self, order: dict[str, Any]) -> None:
        kind, number = order["order"], order.get("trial", 0)
        trial = self.trials.get(number)
        if kind == "start":
            meeting = replace(spec.Rendezvous.from_dict(order["rendezvous"]), interface=self.rendezvous.interface)
            trial = self.runner.start(spec.TrialSpec.from_dict(order["spec"]), NO_LIMITS, meeting)
            trial.on_message = lambda message: self.connection.send({"trial": number, "event": message})
            self.trials[number] = trial
        elif kind == "signal" and trial is not None:
            trial.signal(order["signal"])
        elif kind == "stop" and trial is not None:
            trial.kill()
        elif kind == "exit":
            self.done = True

    def _end(self, number: int, trial: RunningTrial) -> None:
        self.runner.stop(trial)
        end = self.runner.end(trial)
        code = 1 if end.code is None else end.code
        self.connection.send(
            {"trial": number, "code": code, "oom_kills": end.oom_kills, "log": end.log if code else ""}
        )
        del self.trials[number]
