"""One rank of one trial: load, apply, warm up, measure, report."""

from __future__ import annotations

import faulthandler
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

from autotune.runtime.session import Session
from autotune.trial.child import split_check
from autotune.trial.child.loaded_task import LoadedTask, load
from autotune.trial.child.measured_loop import MeasuredLoop, Steps
from autotune.trial.child.measuring import Tuner, comparing, measuring, warming
from autotune.trial.child.reports import send_report
from autotune.trial.child.resume import Resume
from autotune.trial.child.script_trial import LoadedScript
from autotune.trial.child.script_witness import Witness
from autotune.trial.child.task_facts import facts, flops_per_item
from autotune.trial.child.training_loop import TrainingLoop
from autotune.trial.spec import TrialReport, TrialRequest, TrialSpec
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
    why_not, note = split_check.check(task, seed)
    connection.send({"event": "step_facts", "why_not_several": why_not, "note": note})


def _measure(task: LoadedTask, spec: TrialSpec, tuner: Tuner) -> None:
    work = comparing if spec.first_steps else partial(_warm_and_measured, tuner)
    try:
        report = _made(task, spec, tuner, work)
    except RuntimeError as error:
        if UNUSED not in str(error):
            raise
        report = _made(task, spec, tuner, work, find_unused_parameters=True)
    if tuner.rank == 0 or report.not_applied:
        send_report(report, tuner.connection, tuner.rank)


def _warm_and_measured(tuner: Tuner, loop: MeasuredLoop) -> Steps[TrialReport]:
    warmed = yield from warming(loop, tuner)
    return (yield from measuring(loop, warmed, tuner))


def _made(
    task: LoadedTask,
    spec: TrialSpec,
    tuner: Tuner,
    work: Callable[[MeasuredLoop], Steps[TrialReport]],
    *,
    find_unused_parameters: bool = False,
) -> TrialReport:
    """Return the report of ``work`` on a new loop with the settings in force."""
    where = f"file://{Path.cwd()}/.rendezvous{int(find_unused_parameters)}"
    notes = (UNUSED_NOTE,) if find_unused_parameters else ()
    session = Session(spec.settings, device=task.device, init_method=where, notes=notes)
    try:
        loop = TrainingLoop(task, session, spec, tuner.show_life, find_unused_parameters)
        return loop.run(work(loop))
    except BaseException:
        session.close()
        raise
