"""One rank of one trial: load, apply, warm up, measure, report."""

from __future__ import annotations

import faulthandler
import signal
from pathlib import Path

from autotune.runtime.session import Session
from autotune.trial.child import split_check
from autotune.trial.child.loaded_task import LoadedTask, load
from autotune.trial.child.measuring import Tuner, measuring, warming
from autotune.trial.child.reports import send_report
from autotune.trial.child.resume import Resume
from autotune.trial.child.script_trial import LoadedScript
from autotune.trial.child.script_witness import Witness
from autotune.trial.child.task_facts import facts, flops_per_item
from autotune.trial.child.training_loop import TrainingLoop
from autotune.trial.child.warm_up import WarmUp
from autotune.trial.spec import TrialRequest, TrialSpec
from autotune.trial.unix_connection import UnixConnection
from autotune.trial.user_errors import error_report

UNUSED = "find_unused_parameters"
UNUSED_NOTE = (
    "some parameters take no part in the loss: several processes search them out in each step"
    " (tuned.prepare(..., find_unused_parameters=True)), which the rate includes"
)


def run_rank(
    request: TrialRequest, connection: UnixConnection, task: LoadedTask | LoadedScript | None, rank: int
) -> int:
    """Do the ``request`` on this rank and send its report; returns the exit code."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    try:
        if isinstance(task, LoadedScript):
            if request.spec is None:
                return task.testify(Witness(connection, rank, request.world_size))
            return task.try_out(request.spec, Tuner(connection, rank))
        if task is None:
            task = load(Path(request.task))
        if request.spec is None:
            _describe(task, request.seed, connection)
        else:
            _measure(task, request.spec, Tuner(connection, rank))
        return 0
    except Resume:
        raise
    except BaseException as error:
        send_report(error_report(error), connection, rank)
        return 1


def _describe(task: LoadedTask, seed: int, connection: UnixConnection) -> None:
    """Send the facts, and then what running the user's step tells: a crash of that must not cost what was sent."""
    connection.send({"event": "facts", "facts": facts(task, seed).as_dict()})
    connection.send({"event": "step_facts", "flops_per_item": flops_per_item(task, seed)})
    found = split_check.check(task, seed)
    connection.send({"event": "step_facts", "why_not_several": found.why_not, "note": found.note})


def _measure(task: LoadedTask, spec: TrialSpec, tuner: Tuner) -> None:
    try:
        loop, warmed = _warm(task, spec, tuner)
    except RuntimeError as error:
        if UNUSED not in str(error):
            raise
        loop, warmed = _warm(task, spec, tuner, find_unused_parameters=True)
    report = loop.run(measuring(loop, warmed, tuner))
    if tuner.rank == 0 or report.not_applied:
        send_report(report, tuner.connection, tuner.rank)


def _warm(
    task: LoadedTask, spec: TrialSpec, tuner: Tuner, *, find_unused_parameters: bool = False
) -> tuple[TrainingLoop, WarmUp]:
    """The loop with settings in force and warm, and what the warm-up took."""
    where = f"file://{Path.cwd()}/.rendezvous{int(find_unused_parameters)}"
    notes = (UNUSED_NOTE,) if find_unused_parameters else ()
    session = Session(spec.settings, device=task.device, init_method=where, notes=notes)
    try:
        loop = TrainingLoop(task, session, spec, tuner.show_life, find_unused_parameters)
        return loop, loop.run(warming(loop, tuner))
    except BaseException:
        session.close()
        raise
