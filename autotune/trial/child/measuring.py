"""Measures one rank of a trial: the warm-up, blocks, and the report. Generators: see `measured_loop`."""

from __future__ import annotations

import importlib
import math
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from autotune.runtime.loaders import length
from autotune.stats.measurement import (
    MIN_WARMUP_SECONDS,
    MIN_WARMUP_STEPS,
    SLOW_STEP_SECONDS,
    STEADY_BLOCKS,
    Block,
    Measurement,
    enough,
    is_steady,
)
from autotune.trial.child import first_steps
from autotune.trial.child.measured_loop import MeasuredLoop, Steps, peak_memory
from autotune.trial.messages import TrialReport, TrialSpec, UnixConnection

BLOCK_SECONDS = 0.04
HOPELESS = 2.0
"""Steps this many times too slow for the bar end the warm-up at once."""


@dataclass(frozen=True)
class WarmUp:
    """The duration of a warm-up, and whether it ended in a steady state."""

    seconds: float
    steps: int
    steady: bool
    first_step_seconds: float = 0.0
    """The step before it, with everything that torch and the loader do once."""

    @property
    def pace(self) -> float:
        """Return seconds of a step."""
        return self.seconds / max(1, self.steps)


def warm_up(loop: MeasuredLoop) -> Steps[WarmUp]:
    """Step until steady, clearly lost, or out of time."""
    started = time.perf_counter()
    paces: list[float] = []
    steps = 0
    while True:
        seconds = time.perf_counter() - started
        steady = _is_primed(loop, steps, seconds) and _is_steady(paces)
        over = steady or _is_out_of_time(loop.spec, steps, seconds) or _is_lost(loop, paces)
        count = loop.agree(0 if over else _steps_of_block(paces))
        if count == 0:
            return WarmUp(seconds, steps, steady)
        paces.append((yield from loop.timed(count)) / count)
        steps += count


def _is_primed(loop: MeasuredLoop, steps: int, seconds: float) -> bool:
    """Return whether the loader's first queue is consumed and torch's first-step work is over."""
    settings = loop.spec.settings
    queue = settings.num_workers * ((settings.prefetch_factor or 0) + 1)
    return steps >= MIN_WARMUP_STEPS and seconds >= MIN_WARMUP_SECONDS and loop.batches >= queue


def _is_steady(paces: list[float]) -> bool:
    """Return whether the last blocks agree with those before; fewer are compared if a step takes long."""
    slow = bool(paces) and paces[-1] >= SLOW_STEP_SECONDS
    return is_steady(paces, STEADY_BLOCKS - slow)


def _is_out_of_time(spec: TrialSpec, steps: int, seconds: float) -> bool:
    """Return whether the cap is reached. A resident's slow steps need few, since its settings were measured before."""
    slow = seconds / max(1, steps) > SLOW_STEP_SECONDS
    return seconds >= spec.warmup_seconds and steps >= (1 if slow and spec.resident else MIN_WARMUP_STEPS)


def _is_lost(loop: MeasuredLoop, paces: list[float]) -> bool:
    """Return whether two steps in a row are far below the bar: no warm-up makes up for that."""
    if loop.spec.give_up_below <= 0 or len(paces) < 2:
        return False
    bar = loop.step_items * loop.session.world_size / loop.spec.give_up_below
    return min(paces[-2:]) > HOPELESS * bar


def _steps_of_block(paces: list[float]) -> int:
    """Return how many steps fill a block at the latest pace; one if none is known."""
    return max(1, math.ceil(BLOCK_SECONDS / paces[-1])) if paces and paces[-1] else 1


@dataclass(frozen=True)
class Tuner:
    """The tuner as a rank sees it. Only rank 0 talks to it while all goes well."""

    connection: UnixConnection
    rank: int

    def send(self, event: str, **content: Any) -> None:
        """Send one message."""
        if self.rank == 0:
            self.connection.send({"event": event, **content})

    def report(self, report: TrialReport) -> None:
        """Send the report of a trial: rank 0's, and any that says that something is wrong."""
        if self.rank == 0 or report.error is not None or report.not_applied:
            self.connection.send({"event": "report", "rank": self.rank, "report": asdict(report)})

    def show_life(self) -> None:
        """Report that training goes on."""
        self.send("phase", phase="stepping")

    def wanted_seconds(self) -> float | None:
        """Return the seconds of the block that the tuner asks for next; None if it asks for none."""
        if self.rank != 0:
            return None
        message, _ = self.connection.receive()
        if message is None or message["request"] != "block":
            return None
        return float(message["seconds"])


def trying(loop: MeasuredLoop, tuner: Tuner) -> Steps[TrialReport]:
    """Make the steps of one trial, which compares its first steps or measures."""
    if loop.spec.first_steps:
        return (yield from comparing(loop))
    return (yield from measuring(loop, (yield from warming(loop, tuner)), tuner))


def warming(loop: MeasuredLoop, tuner: Tuner) -> Steps[WarmUp]:
    """Make steps until ``loop`` is warm."""
    tuner.send("phase", phase="compiling" if loop.spec.settings.compile != "off" else "starting")
    first = yield from loop.timed(1)
    tuner.send("phase", phase="stepping", first_step=True)
    loop.leave_out()
    return replace((yield from warm_up(loop)), first_step_seconds=first)


def measuring(loop: MeasuredLoop, warmed: WarmUp, tuner: Tuner) -> Steps[TrialReport]:
    """Make the steps of a warm loop that are measured."""
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
    """Make the first steps, which are recorded, or compared with the baseline's."""
    path = Path(loop.spec.first_steps)
    theirs = first_steps.Recording(**torch.load(path, weights_only=False)) if path.exists() else None
    steps = len(theirs.losses) if theirs is not None else first_steps.wanted_steps(length(loop.loader))
    exact = theirs is not None or loop.session.world_size > 1
    since = time.perf_counter()
    with loop.record() as recorder:
        for _ in range(steps):
            yield
            recorder.loses(loop.last_loss())
            if loop.over or (not exact and time.perf_counter() - since > first_steps.MOST_SECONDS):
                break
        ours = recorder.finish()
    found: tuple[tuple[str, str], ...] = ()
    if theirs is not None:
        found = tuple(first_steps.differences(theirs, ours, loop.spec.own or loop.spec.settings, loop.spec.settings))
    elif loop.session.rank == 0:
        torch.save(vars(ours), path)
    return TrialReport(
        differences=found, draws=ours.draws, finite=True, not_applied=loop.session.not_applied, notes=loop.session.notes
    )


def report(loop: MeasuredLoop, warmed: WarmUp, blocks: list[Block], seconds: float) -> TrialReport:
    """Return the report of this rank on ``blocks``, which took ``seconds``."""
    losses = loop.checked_losses()
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
    """Measure blocks until the wanted error or the time cap; one block if the trial is a clear loser.

    Args:
        loop: warm.
        pace: seconds of a step.
    """
    blocks: list[Block] = []
    spec, over = loop.spec, False
    while steps := loop.agree(0 if over else loop.steps_for(0.0, pace)):
        blocks.append((yield from loop.block(steps)))
        pace = blocks[-1].seconds / steps
        measured = Measurement(tuple(blocks))
        over = enough(measured, spec.min_seconds, spec.max_seconds, spec.target_error, spec.give_up_below)
    return blocks


def _on_demand(loop: MeasuredLoop, pace: float, tuner: Tuner) -> Steps[None]:
    """Measure a block whenever the tuner asks, until it asks no more. The tuner gets them one by one."""
    tuner.send("ready")
    while steps := loop.agree(loop.steps_for(seconds, pace) if (seconds := tuner.wanted_seconds()) is not None else 0):
        if pace < SLOW_STEP_SECONDS:
            yield  # caches went cold while others ran
        block = yield from loop.block(steps)
        pace = block.seconds / steps
        tuner.send("block", block=vars(block), finite=loop.finite)
