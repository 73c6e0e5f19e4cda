"""Measures one rank of a trial, or records its first steps, and reports. Generators: see `measured_loop`."""

from __future__ import annotations

import gc
import importlib
import math
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any

import torch
import torch.distributed as dist
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import register_optimizer_step_post_hook

from autotune.knobs.optimizer_impl import parameters_of
from autotune.knobs.settings import Settings
from autotune.knobs.task_facts import MemoryUse
from autotune.runtime import fingerprints
from autotune.runtime.fingerprints import digest
from autotune.runtime.loaders import length
from autotune.scripts import adapters
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
from autotune.stats.outcome import Completed
from autotune.trial.child import first_steps
from autotune.trial.child.measured_loop import READ_ELSEWHERE, MeasuredLoop, Steps
from autotune.trial.child.snapshot import Snapshot
from autotune.trial.child.task import batch_length
from autotune.trial.messages import EVIDENCE_STEPS, RankEvidence, ScriptOver, TrialReport, TrialSpec, error_report
from autotune.trial.parent.judge import check_losses

BLOCK_SECONDS = 0.04
STARVED = 0.2
"""Share of the warm-up that a training waits for its loader, from which it counts as starved."""
HOPELESS = 2.0
"""Steps this many times too slow for the bar end the warm-up at once."""
MOST_BATCHES = 64
TRIES = 2
"""Of a comparison inside a live trial, if the user's own settings read other data in the same steps."""
OWN_STATE = "your script keeps state that a running training cannot put back"
PLAIN = (bool, int, float, str)


def trying(loop: MeasuredLoop) -> Steps[TrialReport]:
    """Make the steps of one trial: measure, compare the first steps, or record how a rank trains."""
    if loop.spec.evidence:
        return (yield from recording(loop))
    if loop.spec.first_steps:
        return (yield from comparing(loop))
    if loop.spec.live:
        loop.start = Snapshot.take(loop.trained_with(), loop.buffers(), loop.loader)
    loop.tuner.send("phase", phase="compiling" if loop.spec.settings.compile != "off" else "starting")
    first = yield from loop.timed(1)
    loop.tuner.send("phase", phase="stepping", first_step=True)
    loop.leave_out()
    warmed = replace((yield from warm_up(loop)), first_step_seconds=first)
    return (yield from measuring(loop, warmed))


# Measuring ------------------------------------------------------------------------------------------------------------


def warm_up(loop: MeasuredLoop) -> Steps[Measurement]:
    """Step until steady, clearly lost, or out of time. Return a measurement that has no blocks yet."""
    started = loop.clock()
    paces: list[float] = []
    steps = 0
    while True:
        seconds = loop.clock() - started
        steady = _is_primed(loop, steps, seconds) and _is_steady(paces)
        if loop.over:
            raise ScriptOver
        over = steady or _is_out_of_time(loop.spec, steps, seconds) or _is_lost(loop, paces)
        count = loop.agree(0 if over else _steps_of_block(paces))
        if count == 0:
            return Measurement((), warmup_seconds=seconds, warmup_steps=steps)
        paces.append((yield from loop.timed(count)) / count)
        steps += count


def _is_primed(loop: MeasuredLoop, steps: int, seconds: float) -> bool:
    """Return True if the loader's first queue is consumed and torch's first-step work is over."""
    settings = loop.spec.settings
    queue = settings.num_workers * ((settings.prefetch_factor or 0) + 1)
    read = loop.batches - loop.queue_empty_at
    return steps >= MIN_WARMUP_STEPS and seconds >= MIN_WARMUP_SECONDS and read >= queue


def _is_steady(paces: list[float]) -> bool:
    """Return True if the last blocks agree with those before; fewer are compared if a step takes long."""
    slow = bool(paces) and paces[-1] >= SLOW_STEP_SECONDS
    return is_steady(paces, STEADY_BLOCKS - slow)


def _is_out_of_time(spec: TrialSpec, steps: int, seconds: float) -> bool:
    """Return True if the cap is reached. A resident trial needs few steps: its settings were measured before."""
    slow = seconds / max(1, steps) > SLOW_STEP_SECONDS
    return seconds >= spec.warmup_seconds and steps >= (1 if slow and spec.resident else MIN_WARMUP_STEPS)


def _is_lost(loop: MeasuredLoop, paces: list[float]) -> bool:
    """Return True if two steps in a row are far below the bar: no warm-up makes up for that."""
    if loop.spec.give_up_below <= 0 or len(paces) < 2:
        return False
    bar = loop.step_items * loop.session.world_size / loop.spec.give_up_below
    return min(paces[-2:]) > HOPELESS * bar


def _steps_of_block(paces: list[float]) -> int:
    """Return how many steps fill a block at the latest pace; one if none is known."""
    return max(1, math.ceil(BLOCK_SECONDS / paces[-1])) if paces and paces[-1] else 1


def measuring(loop: MeasuredLoop, warmed: Measurement) -> Steps[TrialReport]:
    """Make the steps of a loop that are measured after its warm-up ``warmed``, and report them."""
    loop.starved, loop.waited = loop.waited > STARVED * warmed.warmup_seconds, 0.0
    started = loop.clock()
    pace = warmed.warmup_seconds / max(1, warmed.warmup_steps)
    blocks: list[Block] = []
    found = None
    if loop.spec.inspect:
        module, _, name = loop.spec.inspect.partition(":")  # of a package above this one
        found = yield from getattr(importlib.import_module(module), name)(loop, pace)
    elif loop.spec.resident:
        yield from _on_demand(loop, warmed)
    else:
        blocks = yield from _until_enough(loop, pace)
    return replace(_report(loop, warmed, blocks, loop.clock() - started), inspection=found)


def _report(
    loop: MeasuredLoop, warmed: Measurement, blocks: Sequence[Block], seconds: float, skipped: int = 0
) -> TrialReport:
    """Return the report of ``blocks`` that took ``seconds``, after the warm-up ``warmed`` and ``skipped`` steps."""
    whole = loop.spec.live or not loop.spec.resident
    measurement = replace(
        warmed,
        blocks=tuple(blocks),
        skipped_steps=loop.session.skipped_steps - skipped,
        load_share=min(1.0, loop.waited / seconds) if seconds > 0 else 0.0,
        memory=loop.memory() if whole else MemoryUse(),
        load_threads=loop.load_threads() if whole else 1.0,
    )
    return TrialReport(
        measurement=measurement,
        losses=loop.checked_losses(),
        finite=loop.finite,
        not_applied=loop.session.not_applied,
    )


def _until_enough(loop: MeasuredLoop, pace: float) -> Steps[list[Block]]:
    """Measure blocks until the wanted error or the time cap; one block if the trial is a clear loser. A step takes
    about ``pace`` seconds."""
    blocks: list[Block] = []
    spec, over = loop.spec, False
    while steps := loop.agree(0 if over else loop.steps_for(0.0, pace)):
        try:
            blocks.append((yield from loop.block(steps)))
        except ScriptOver:
            if not blocks:
                raise
            break
        pace = blocks[-1].seconds / steps
        measured = Measurement(tuple(blocks))
        over = enough(measured, spec.min_seconds, spec.max_seconds, spec.target_error, spec.give_up_below)
    return blocks


def _on_demand(loop: MeasuredLoop, warmed: Measurement) -> Steps[None]:
    """Measure blocks at the requests of the tuner, until it stops. The tuner gets a report of each.

    In a live trial a request may name other settings. What a switch costs is let pass before the block.
    """
    loop.tuner.send("ready")
    pace = warmed.warmup_seconds / max(1, warmed.warmup_steps)
    while (request := loop.asked()) is not None:
        settings = Settings(**request["settings"]) if request.get("settings") else loop.spec.settings
        if request["request"] == "compare":
            report = yield from comparing_inside(loop, settings, Settings(**request["reference"]), pace)
            loop.tuner.send("block", report=asdict(report))
            continue
        if not loop.finite:
            loop.go_back()
        if settings != loop.spec.settings:
            warmed = yield from _switched(loop, settings)
            pace = warmed.warmup_seconds / max(1, warmed.warmup_steps)
        elif pace < SLOW_STEP_SECONDS:
            yield  # caches went cold while others ran
        if loop.failure is not None:
            report, loop.failure = error_report(loop.failure), None
        else:
            skipped, loop.waited = loop.session.skipped_steps, 0.0
            loop.losses.clear()
            block = yield from loop.block(loop.agree(loop.steps_for(request["seconds"], pace)))
            pace = block.seconds / block.steps
            report = _report(loop, warmed, [block], block.seconds, skipped)
        loop.tuner.send("block", report=asdict(report))


def _switched(loop: MeasuredLoop, settings: Settings) -> Steps[Measurement]:
    """Change to other settings, and step until they run steadily. Return a measurement that has no blocks yet."""
    compiles = settings.compile not in ("off", loop.spec.settings.compile)
    loop.tuner.send("phase", phase="compiling" if compiles else "stepping")
    loop.switch(settings)
    first = yield from loop.timed(1)
    loop.tuner.send("phase", phase="stepping")
    return replace((yield from warm_up(loop)), first_step_seconds=first)


# First steps ----------------------------------------------------------------------------------------------------------


def comparing(loop: MeasuredLoop) -> Steps[TrialReport]:
    """Make the first steps, which are recorded, or compared with the baseline's."""
    path, own = Path(loop.spec.first_steps), loop.spec.own or loop.spec.settings
    theirs = first_steps.read(path) if path.exists() else None
    repeats = [first_steps.read(each) for each in path.parent.glob(f"{path.name}-*")]
    exact = theirs is not None or loop.session.world_size > 1
    steps = len(theirs.losses) if theirs is not None else first_steps.wanted_steps(length(loop.loader))
    ours = yield from _recorded(loop, steps, math.inf if exact else first_steps.MOST_SECONDS)
    if loop.reads_elsewhere:
        return TrialReport(error=READ_ELSEWHERE, error_type="")
    found: tuple[tuple[str, str], ...] = ()
    if theirs is not None:
        found = tuple(first_steps.differences(theirs, ours, own, loop.spec.settings, repeats))
    if loop.spec.settings == own and loop.session.rank == 0:
        torch.save(vars(ours), path if theirs is None else path.with_name(f"{path.name}-{len(repeats)}"))
    return TrialReport(differences=found, draws=ours.draws, not_applied=loop.session.not_applied)


def _recorded(
    loop: MeasuredLoop, steps: int, seconds: float, begin: Callable[[], object] = lambda: None
) -> Steps[first_steps.Recording]:
    """Record so many steps, fewer if they take longer than so many ``seconds`` or the script comes to its end.

    ``begin`` is called before them: workers that start there are watched, too.
    """
    until = time.perf_counter() + seconds
    with first_steps.Recorder(
        loop.trained_with, loop.buffers, lambda: [loop.loader, *loop.beside.values()]
    ) as recorder:
        loop.on_batch = recorder.takes
        begin()
        for _ in range(steps):
            yield
            if not loop.over:
                recorder.records_loss(loop.last_loss())
            if loop.over or time.perf_counter() > until:
                break
        loop.on_batch = None
        return recorder.finish()


def comparing_inside(loop: MeasuredLoop, settings: Settings, reference: Settings, pace: float) -> Steps[TrialReport]:
    """Compare first steps inside a live trial with those of the ``reference``, the user's own at the same batch.

    The reference makes them just before, and once more if they differ: what the script's own state changes meanwhile
    is no knob's doing. A step takes about ``pace`` seconds.
    """
    loop.tuner.send("phase", phase="comparing")
    if loop.reads_elsewhere:
        return TrialReport(error=READ_ELSEWHERE, error_type="")

    def from_start(of: Settings, steps: int, seconds: float = math.inf) -> Steps[first_steps.Recording]:
        def go_back() -> None:
            if of != loop.spec.settings:
                loop.switch(of)
            loop.go_back()

        yield from loop.reach_beginning(steps, pace)
        return (yield from _recorded(loop, steps, seconds, lambda: loop.begin_anew(go_back)))

    def found(*again: first_steps.Recording) -> list[tuple[str, str]]:
        found = first_steps.differences(theirs, ours, reference, settings, again)
        tracked = check_losses(Completed(losses=tuple(ours.losses)), settings, theirs.losses)
        apart, spread = abs(fmean(ours.losses) - fmean(theirs.losses)), first_steps.Spread.of(theirs, again)
        within = tracked.measured or (spread is not None and apart <= spread.loss(len(ours.losses)))
        return found if within else [*found, ("losses", tracked.reason)]

    for _ in range(TRIES):
        theirs = yield from from_start(reference, first_steps.LEAST_STEPS, first_steps.MOST_SECONDS)
        ours = yield from from_start(settings, len(theirs.losses))
        error, loop.failure = loop.failure, None
        if error is not None:
            return error_report(error)
        report = TrialReport(differences=(), draws=ours.draws, not_applied=loop.session.not_applied)
        if report.not_applied or not found():
            return report
        again = yield from from_start(reference, len(theirs.losses))
        if not first_steps.differences(theirs, again, reference, reference, [again]):
            return replace(report, differences=tuple(found(again)))
    return TrialReport(error=OWN_STATE, error_type="")


def recording(loop: MeasuredLoop) -> Steps[TrialReport]:
    """Make steps until every optimizer has stepped, send what was seen, and wait for the end."""
    recorder = StepRecorder(loop)
    while not recorder.is_enough():
        if len(recorder.batches) >= MOST_BATCHES:
            raise RuntimeError(f"not every optimizer made a step within {MOST_BATCHES} batches")
        yield
    loop.tuner.connection.send({"event": "evidence", "evidence": asdict(recorder.evidence())})
    while True:  # the tuner ends all ranks together: others may still need this one
        signal.pause()


class StepRecorder:
    """Records the first batches and steps of one rank, to find if several ranks share the work of one."""

    def __init__(self, loop: MeasuredLoop) -> None:
        self._loop, self._reads = loop, fingerprints.of_loader(loop.loader)
        self.batches: list[str] = []
        self._samples = 0
        self._first_weights = ""
        self._stepped: set[int] = set()
        self._batches_at: list[int] = []
        self._gradients: list[float] = []
        loop.on_batch = self._takes
        register_optimizer_step_post_hook(self._steps)

    def _takes(self, batch: Any) -> None:
        """Record a batch."""
        if not self.batches:
            self._samples, self._first_weights = batch_length(batch), self._loop.weights()
        self.batches.append(digest(batch))

    def _steps(self, optimizer: Optimizer, *_: Any) -> None:
        """Record the step of an optimizer; its gradients are still there."""
        self._stepped.add(id(optimizer))
        if optimizer is self._loop.trained_with()[0]:
            self._batches_at.append(len(self.batches))
            self._gradients.append(first_steps.norm(p.grad for p in parameters_of(optimizer)))

    def is_enough(self) -> bool:
        """Return True if each optimizer that is held has stepped, and the first one often enough."""
        all_stepped = all(id(optimizer) in self._stepped for optimizer in self._loop.trained_with())
        return all_stepped and len(self._batches_at) >= EVIDENCE_STEPS

    def evidence(self) -> RankEvidence:
        """Return what was seen of this rank."""
        grouped = dist.is_available() and dist.is_initialized()
        weights, optimizers = self._loop.weights(), self._loop.trained_with()
        steps, gradients = self._batches_at[:EVIDENCE_STEPS], self._gradients[:EVIDENCE_STEPS]
        return RankEvidence(
            rank=self._loop.tuner.rank,
            world=dist.get_world_size() if grouped else 1,
            backend=_backend() if grouped else "",
            samples=self._samples,
            batches=tuple(self.batches[:EVIDENCE_STEPS]),
            epoch=length(self._loop.loader),
            batches_per_step=(steps[-1] - steps[0]) / (len(steps) - 1),
            weights=weights,
            changed=weights != self._first_weights,
            gradient=geometric_mean(gradients) if all(gradients) else 0.0,
            options=tuple(_options(group) for optimizer in optimizers for group in optimizer.param_groups),
            schedules=tuple(sorted(o.last_epoch for o in gc.get_objects() if issubclass(type(o), LRScheduler))),
            loader=self._reads,
            advice=adapters.several_processes(),
        )


def _backend() -> str:
    """Return what the script's process group exchanges tensors of the CPU with."""
    backends = dict(pair.split(":") for pair in str(dist.get_backend_config()).split(",") if ":" in pair)
    return backends.get("cpu", str(dist.get_backend()))


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the learning rate and the like of one parameter group."""
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in group.items()}
    return {name: value for name, value in plain.items() if name != "params" and _is_plain(value)}


def _is_plain(value: Any) -> bool:
    return all(isinstance(part, PLAIN) for part in (value if isinstance(value, list) else [value]))
