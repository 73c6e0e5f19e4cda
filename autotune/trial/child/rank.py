"""One rank of one trial: load, apply, warm up, measure, report."""

from __future__ import annotations

import faulthandler
import resource
import signal
import sys
import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from autotune.core.measurement import SLOW_STEP_SECONDS, Block, Measurement, enough
from autotune.runtime.session import Session
from autotune.trial.child import split_check
from autotune.trial.child.loaded_task import LoadedTask, load
from autotune.trial.child.task_facts import facts, flops_per_item
from autotune.trial.child.training_loop import TrainingLoop
from autotune.trial.child.warm_up import WarmUp, warm_up
from autotune.trial.spec import Rendezvous, TrialReport, TrialRequest, TrialSpec
from autotune.trial.unix_connection import UnixConnection
from autotune.trial.user_errors import error_report

UNUSED = "find_unused_parameters"
UNUSED_NOTE = (
    "some parameters take no part in the loss: several processes search them out in each step"
    " (tuned.prepare(..., find_unused_parameters=True)), which the rate includes"
)


def run_rank(request: TrialRequest, connection: UnixConnection, task: LoadedTask | None, rank: int) -> int:
    """Do the ``request`` on this rank and send its report; returns the exit code."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    try:
        if task is None:
            task = load(Path(request.task))
        if request.spec is None:
            _describe(task, request.seed, connection)
        else:
            _Rank(request.spec, task, connection, rank, request.rendezvous).run()
        return 0
    except BaseException as error:
        _send(error_report(error), connection, rank)
        return 1


def _describe(task: LoadedTask, seed: int, connection: UnixConnection) -> None:
    """Send the facts, and then what running the user's step tells: a crash of that must not cost what was sent."""
    connection.send({"event": "facts", "facts": facts(task, seed).as_dict()})
    connection.send({"event": "step_facts", "flops_per_item": flops_per_item(task, seed)})
    found = split_check.check(task, seed)
    connection.send({"event": "step_facts", "why_not_several": found.why_not, "note": found.note})


class _Rank:
    """One rank of a trial. Only rank 0 talks to the tuner while it runs."""

    def __init__(
        self, spec: TrialSpec, task: LoadedTask, connection: UnixConnection, rank: int, rendezvous: Rendezvous | None
    ) -> None:
        self.spec, self.task, self.connection, self.rank, self.rendezvous = spec, task, connection, rank, rendezvous

    def _say(self, event: str, **content: Any) -> None:
        if self.rank == 0:
            self.connection.send({"event": event, **content})

    def run(self) -> None:
        """Warm up, measure and report."""
        try:
            loop, warmed = self._warm()
        except RuntimeError as error:
            if UNUSED not in str(error):
                raise
            loop, warmed = self._warm(find_unused_parameters=True)
        loop.waited = 0.0
        started = time.perf_counter()
        blocks = self._resident(loop, warmed.pace) if self.spec.resident else self._measure(loop, warmed.pace)
        seconds = time.perf_counter() - started
        losses = loop.checked_losses()
        if self.spec.settings.precision in ("bf16", "fp16") and not self.spec.resident:
            loop.check_whole_autocast()
        measurement = Measurement(
            blocks=tuple(blocks),
            warmup_seconds=warmed.seconds,
            warmup_steps=warmed.steps,
            steady=warmed.steady,
            skipped_steps=loop.session.skipped_steps,
            first_step_seconds=warmed.first_step_seconds,
            load_share=min(1.0, loop.waited / seconds) if seconds > 0 else 0.0,
            peak_memory=_peak_memory(self.task.device),
        )
        report = TrialReport(
            measurement=measurement,
            losses=losses,
            finite=loop.finite,
            not_applied=loop.session.not_applied,
            notes=loop.session.notes,
        )
        if self.rank == 0 or report.not_applied:
            _send(report, self.connection, self.rank)

    def _warm(self, find_unused_parameters: bool = False) -> tuple[TrainingLoop, WarmUp]:
        """The loop with settings in force and warm, and what the warm-up took."""
        settings = self.spec.settings
        attempt = int(find_unused_parameters)
        file = f"file://{Path.cwd()}/.rendezvous{attempt}"
        where = self.rendezvous.init_method(attempt) if self.rendezvous is not None else file
        notes = (UNUSED_NOTE,) if find_unused_parameters else ()
        session = Session(settings, device=self.task.device, init_method=where, notes=notes)
        try:
            show_life = partial(self._say, "phase", phase="stepping")
            loop = TrainingLoop(self.task, session, self.spec, show_life, find_unused_parameters)
            self._say("phase", phase="compiling" if settings.compile != "off" else "starting")
            first = loop.timed(1)
            self._say("phase", phase="stepping", first_step=True)
            return loop, replace(warm_up(loop), first_step_seconds=first)
        except BaseException:
            session.close()
            raise

    def _measure(self, loop: TrainingLoop, pace: float) -> list[Block]:
        """Blocks until the wanted error or the time cap; one block where the trial is a clear loser.

        Args:
            loop: warm.
            pace: seconds of a step.
        """
        blocks: list[Block] = []
        while steps := loop.agree(0 if self._enough(blocks) else loop.steps_for(0.0, pace)):
            blocks.append(loop.block(steps))
            pace = blocks[-1].seconds / steps
        return blocks

    def _enough(self, blocks: list[Block]) -> bool:
        spec = self.spec
        return bool(blocks) and enough(
            Measurement(tuple(blocks)), spec.min_seconds, spec.max_seconds, spec.target_error, spec.give_up_below
        )

    def _resident(self, loop: TrainingLoop, pace: float) -> list[Block]:
        """Measure a block whenever the tuner asks, until it asks no more. The tuner gets them one by one."""
        self._say("ready")
        while steps := loop.agree(self._requested_steps(loop, pace)):
            if pace < SLOW_STEP_SECONDS:
                loop.step()  # caches went cold while others ran
            block = loop.block(steps)
            pace = block.seconds / steps
            self._say("block", block=vars(block), finite=loop.finite)
        return []

    def _requested_steps(self, loop: TrainingLoop, pace: float) -> int:
        """Steps of the block that the tuner asks for next; 0 where it asks for none. Only rank 0 hears of it."""
        if self.rank != 0:
            return 0
        message, _ = self.connection.receive()
        if message is None or message["request"] != "block":
            return 0
        return loop.steps_for(float(message["seconds"]), pace)


def _send(report: TrialReport, connection: UnixConnection, rank: int) -> None:
    connection.send({"event": "report", "rank": rank, "report": asdict(report)})


def _peak_memory(device: str) -> int:
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
