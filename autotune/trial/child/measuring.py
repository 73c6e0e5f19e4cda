"""What one rank of a trial measures: the warm-up, blocks, and the report. Generators: see `measured_loop`."""

from __future__ import annotations

import importlib
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.stats.measurement import SLOW_STEP_SECONDS, Block, Measurement, enough
from autotune.trial.child import first_steps
from autotune.trial.child.measured_loop import MeasuredLoop, Steps, peak_memory
from autotune.trial.child.warm_up import WarmUp, warm_up
from autotune.trial.spec import TrialReport
from autotune.trial.unix_connection import UnixConnection


@dataclass(frozen=True)
class Tuner:
    """The tuner as a rank sees it. Only rank 0 talks to it while a trial runs."""

    connection: UnixConnection
    rank: int

    def tell(self, event: str, **content: Any) -> None:
        """Send one message."""
        if self.rank == 0:
            self.connection.send({"event": event, **content})

    def show_life(self) -> None:
        """Say that training goes on."""
        self.tell("phase", phase="stepping")

    def wanted_seconds(self) -> float | None:
        """Of the block that the tuner asks for next; None where it asks for none."""
        if self.rank != 0:
            return None
        message, _ = self.connection.receive()
        if message is None or message["request"] != "block":
            return None
        return float(message["seconds"])


def warming(loop: MeasuredLoop, tuner: Tuner) -> Steps[WarmUp]:
    """The steps until ``loop`` is warm."""
    tuner.tell("phase", phase="compiling" if loop.spec.settings.compile != "off" else "starting")
    first = yield from loop.timed(1)
    tuner.tell("phase", phase="stepping", first_step=True)
    loop.leave_out()
    return replace((yield from warm_up(loop)), first_step_seconds=first)


def measuring(loop: MeasuredLoop, warmed: WarmUp, tuner: Tuner) -> Steps[TrialReport]:
    """The steps of a warm loop that are measured."""
    loop.waited = 0.0
    started = time.perf_counter()
    if loop.spec.inspect:
        module, _, name = loop.spec.inspect.partition(":")  # of a room above this one
        found = yield from getattr(importlib.import_module(module), name)(loop, warmed.pace)
        return replace(report(loop, warmed, [], time.perf_counter() - started), inspection=found)
    if loop.spec.resident:
        blocks: list[Block] = []
        yield from _on_demand(loop, warmed.pace, tuner)
    else:
        blocks = yield from _until_enough(loop, warmed.pace)
    return report(loop, warmed, blocks, time.perf_counter() - started)


def comparing(loop: MeasuredLoop) -> Steps[TrialReport]:
    """The first steps, which are recorded, or compared with the baseline's."""
    path = Path(loop.spec.first_steps)
    theirs = first_steps.read(path) if path.exists() else None
    steps = len(theirs.losses) if theirs is not None else first_steps.wanted_steps(loop.batches_of_epoch())
    clock = first_steps.Clock(steps, exact=theirs is not None or loop.session.world_size > 1)
    with loop.record() as recorder:
        while True:
            yield
            loss = loop.last_loss()
            recorder.loses(loss)
            if clock.is_over() or loop.over:
                break
        ours = recorder.finish()
    found: tuple[tuple[str, str], ...] = ()
    if theirs is not None:
        found = tuple(first_steps.differences(theirs, ours, loop.spec.own or loop.spec.settings, loop.spec.settings))
    elif loop.session.rank == 0:
        first_steps.write(ours, path)
    return TrialReport(
        differences=found, draws=ours.draws, finite=True, not_applied=loop.session.not_applied, notes=loop.session.notes
    )


def report(loop: MeasuredLoop, warmed: WarmUp, blocks: list[Block], seconds: float) -> TrialReport:
    """What this rank has to say of ``blocks``, which took ``seconds``."""
    losses = loop.checked_losses()
    if loop.spec.settings.precision in ("bf16", "fp16") and not loop.spec.resident:
        loop.check_whole_autocast()
    measurement = Measurement(
        blocks=tuple(blocks),
        warmup_seconds=warmed.seconds,
        warmup_steps=warmed.steps,
        steady=warmed.steady,
        skipped_steps=loop.session.skipped_steps,
        first_step_seconds=warmed.first_step_seconds,
        load_share=min(1.0, loop.waited / seconds) if seconds > 0 else 0.0,
        peak_memory=peak_memory(loop.session.device),
    )
    return TrialReport(
        measurement=measurement,
        losses=losses,
        finite=loop.finite,
        not_applied=loop.session.not_applied,
        notes=loop.session.notes,
    )


def _until_enough(loop: MeasuredLoop, pace: float) -> Steps[list[Block]]:
    """Blocks until the wanted error or the time cap; one block where the trial is a clear loser.

    Args:
        loop: warm.
        pace: seconds of a step.
    """
    blocks: list[Block] = []
    while steps := loop.agree(0 if _enough(loop, blocks) else loop.steps_for(0.0, pace)):
        blocks.append((yield from loop.block(steps)))
        pace = blocks[-1].seconds / steps
    return blocks


def _enough(loop: MeasuredLoop, blocks: list[Block]) -> bool:
    spec = loop.spec
    return bool(blocks) and enough(
        Measurement(tuple(blocks)), spec.min_seconds, spec.max_seconds, spec.target_error, spec.give_up_below
    )


def _on_demand(loop: MeasuredLoop, pace: float, tuner: Tuner) -> Steps[None]:
    """Measure a block whenever the tuner asks, until it asks no more. The tuner gets them one by one."""
    tuner.tell("ready")
    while steps := loop.agree(_steps_wanted(loop, pace, tuner.wanted_seconds())):
        if pace < SLOW_STEP_SECONDS:
            yield  # caches went cold while others ran
        block = yield from loop.block(steps)
        pace = block.seconds / steps
        tuner.tell("block", block=vars(block), finite=loop.finite)


def _steps_wanted(loop: MeasuredLoop, pace: float, seconds: float | None) -> int:
    """Steps of the block of ``seconds`` that the tuner asks for next; 0 where it asks for none."""
    return 0 if seconds is None else loop.steps_for(seconds, pace)
