"""One rank of one trial: load, apply, warm up, measure, report."""

from __future__ import annotations

import faulthandler
import resource
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from autotune.core.measurement import SLOW_STEP_SECONDS, Block, Measurement, enough
from autotune.runtime.session import Session
from autotune.trial.child import split_check
from autotune.trial.child.loaded_task import Task, facts, flops_per_item, load
from autotune.trial.child.training_loop import TrainingLoop
from autotune.trial.spec import Meeting, TrialReport, TrialSpec
from autotune.trial.unix_connection import Channel
from autotune.trial.user_errors import describe

UNUSED = "find_unused_parameters"
UNUSED_NOTE = (
    "some parameters take no part in the loss: several processes search them out in each step"
    " (tuned.prepare(..., find_unused_parameters=True)), which the rate includes"
)
Warm = tuple[float, int, bool]
"""Seconds and steps of a warm-up, and whether it ended in a steady state."""


def work(request: dict[str, Any], channel: Channel, task: Task | None, rank: int) -> int:
    """Do the ``request`` on this rank and send its report; returns the exit code."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    try:
        if task is None:
            task = load(Path(request["task"]))
        if request["job"] == "describe":
            _describe(task, request["seed"], channel)
            return 0
        meeting = Meeting.from_dict(request["meeting"]) if request["meeting"] is not None else None
        _Trial(TrialSpec.from_dict(request["spec"]), task, channel, rank, meeting).run()
        return 0
    except BaseException as error:
        fault = describe(error)
        report = TrialReport(error=fault["text"], error_type=fault["type"], traceback=fault["traceback"])
        channel.send({"event": "report", "rank": rank, "report": report.as_dict()})
        return 1


def _describe(task: Task, seed: int, channel: Channel) -> None:
    """Send the facts, and then what running the user's step tells: whatever that does must not cost what was sent."""
    channel.send({"event": "facts", "facts": facts(task, seed).as_dict()})
    channel.send({"event": "step_facts", "flops_per_item": flops_per_item(task, seed)})
    verdict = split_check.check(task, seed)
    channel.send({"event": "step_facts", "refusal": verdict.refusal, "note": verdict.note})


class _Trial:
    def __init__(
        self, spec: TrialSpec, task: Task, channel: Channel, rank: int, meeting: Meeting | None = None
    ) -> None:
        self.spec, self.task, self.channel, self.rank, self.meeting = spec, task, channel, rank, meeting

    def _say(self, event: str, **content: Any) -> None:
        if self.rank == 0:
            self.channel.send({"event": event, **content})

    def run(self) -> None:
        spec = self.spec
        try:
            session, loop, first, warm = self._warm()
        except RuntimeError as error:
            if UNUSED not in str(error):
                raise
            session, loop, first, warm = self._warm(find_unused_parameters=True)
        pace = warm[0] / max(1, warm[1])
        loop.waited = 0.0
        started = time.perf_counter()
        blocks = self._resident(loop, pace) if spec.resident else self._measure(loop, pace)
        measured = time.perf_counter() - started
        losses = loop.checked_losses()
        if spec.settings.precision in ("bf16", "fp16") and not spec.resident:
            loop.check_whole_autocast()
        measurement = Measurement(
            blocks=tuple(blocks),
            warmup_seconds=warm[0],
            warmup_steps=warm[1],
            steady=warm[2],
            skipped_steps=session.skipped_steps,
            first_step_seconds=first,
            load_share=min(1.0, loop.waited / measured) if measured > 0 else 0.0,
            peak_memory=_peak_memory(self.task.device),
        )
        report = TrialReport(
            measurement=measurement,
            losses=losses,
            finite=loop.finite,
            not_applied=session.not_applied,
            notes=session.notes,
        )
        if self.rank == 0 or report.not_applied:
            self.channel.send({"event": "report", "rank": self.rank, "report": report.as_dict()})

    def _warm(self, find_unused_parameters: bool = False) -> tuple[Session, TrainingLoop, float, Warm]:
        """Settings in force, the loop warm; with seconds of the first step and what the warm-up took."""
        settings = self.spec.settings
        attempt = int(find_unused_parameters)
        where = self.meeting.init_method(attempt) if self.meeting else f"file://{Path.cwd()}/.rendezvous{attempt}"
        notes = (UNUSED_NOTE,) if find_unused_parameters else ()
        session = Session(settings, device=self.task.device, init_method=where, notes=notes)
        try:
            pulse = partial(self._say, "phase", phase="stepping")
            loop = TrainingLoop(self.task, session, self.spec, pulse, find_unused_parameters)
            self._say("phase", phase="compiling" if settings.compile != "off" else "starting")
            first = loop.first_step()
            self._say("phase", phase="stepping", first_step=True)
            return session, loop, first, loop.warm_up()
        except BaseException:
            session.close()
            raise

    def _measure(self, loop: TrainingLoop, pace: float) -> list[Block]:
        """Blocks until the wanted error or the time cap; one block where the trial is a clear loser."""
        blocks: list[Block] = []
        while True:
            steps = 0 if self._enough(blocks) else loop.steps_for(0.0, pace)
            steps = loop.agree(steps)
            if steps == 0:
                return blocks
            blocks.append(loop.block(steps))
            pace = blocks[-1].seconds / steps

    def _enough(self, blocks: list[Block]) -> bool:
        spec = self.spec
        return bool(blocks) and enough(
            Measurement(tuple(blocks)), spec.min_seconds, spec.max_seconds, spec.target_error, spec.give_up_below
        )

    def _resident(self, loop: TrainingLoop, pace: float) -> list[Block]:
        """Measure a block whenever the tuner asks; ends at its word."""
        self._say("ready")
        while True:
            seconds = self._next_request()
            steps = loop.agree(0 if seconds is None else loop.steps_for(seconds, pace))
            if steps == 0:
                return []
            if pace < SLOW_STEP_SECONDS:
                loop.step()  # caches went cold while others ran
            block = loop.block(steps)
            pace = block.seconds / steps
            self._say("block", block=vars(block), finite=loop.finite)

    def _next_request(self) -> float | None:
        if self.rank != 0:
            return 0.0
        message, _ = self.channel.receive()
        if message is None or message["request"] != "block":
            return None
        return float(message["seconds"])


def _peak_memory(device: str) -> int:
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
