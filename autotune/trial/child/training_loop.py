"""The measured training loop: the user's step, run through the very runtime that training will use."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from autotune.core.measurement import (
    MIN_BLOCK_SECONDS,
    MIN_WARMUP_SECONDS,
    MIN_WARMUP_STEPS,
    SLOW_STEP_SECONDS,
    STEADY_BLOCKS,
    Block,
    is_steady,
)
from autotune.runtime.session import Session
from autotune.trial.child.core_latency import CoreLatencyTimer
from autotune.trial.child.cpu_contention import CpuContention
from autotune.trial.child.loaded_task import LoadedTask
from autotune.trial.spec import CHECK_STEPS, TrialSpec

WARMUP_BLOCK_SECONDS = 0.04
LIFE_SIGN_SECONDS = 0.5
AUTOCAST_CHECKS = 2
HOPELESS = 2.0
"""Steps this many times too slow for the bar end the warm-up at once."""


@dataclass(frozen=True)
class WarmUp:
    """What a warm-up took, and whether it ended in a steady state."""

    seconds: float
    steps: int
    steady: bool
    first_step_seconds: float = 0.0
    """The step before it, with everything that torch and the loader do once."""

    @property
    def pace(self) -> float:
        """Seconds of a step."""
        return self.seconds / max(1, self.steps)


class TrainingLoop:
    """One rank's model, optimizer and loader, stepped in blocks that all ranks agree on.

    Args:
        task: the loaded task file.
        session: the runtime with the trial's settings applied.
        spec: the trial.
        show_life: called at least every half second of stepping.
        find_unused_parameters: see `Session.prepare`.
    """

    def __init__(
        self,
        task: LoadedTask,
        session: Session,
        spec: TrialSpec,
        show_life: Callable[[], None],
        find_unused_parameters: bool = False,
    ) -> None:
        self.task, self.session, self.spec, self._show_life = task, session, spec, show_life
        model = task.build_model(spec.seed)
        optimizer = task.build_optimizer(model)
        loader = task.build_loader(
            spec.settings.global_batch, spec.seed, spec.settings.num_workers, spec.settings.persistent_workers
        )
        self.model, self.optimizer, self.loader = session.prepare(
            model, optimizer, loader, find_unused_parameters=find_unused_parameters
        )
        self.count = task.counter()
        self.stream = self._batches()
        self.losses: list[torch.Tensor] = []
        self.finite = True
        self.waited = 0.0
        self.batches = 0
        self._items = 0.0
        self._step_items = 0.0
        self._total = torch.zeros((), device=task.device)
        self._last_sign_at = time.perf_counter()
        self._latency = CoreLatencyTimer(task.device, spec.settings.threads)

    def _batches(self) -> Iterator[Any]:
        while True:
            empty = True
            for batch in self.loader:
                empty = False
                yield batch
            if empty:
                raise ValueError("the DataLoader yielded no batch: the dataset is empty or smaller than one batch")

    def step(self) -> None:
        """One optimizer step, on one batch."""
        batch = self._next_batch()
        skipped = self.session.skipped_steps
        loss = self.task.loss(self.model, batch)
        self.session.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        mean = loss.detach().reshape(()).float() * self.session.weight
        self._total += mean
        if len(self.losses) < CHECK_STEPS:
            self.losses.append(mean)
        self._step_items = self.count(batch) * self.session.share
        if self.session.skipped_steps == skipped:
            self._items += self._step_items
        self._maybe_show_life()

    def _next_batch(self) -> Any:
        asked = time.perf_counter()
        batch = next(self.stream)
        self.waited += time.perf_counter() - asked
        self.batches += 1
        return batch

    def _maybe_show_life(self) -> None:
        now = time.perf_counter()
        if now - self._last_sign_at > LIFE_SIGN_SECONDS:
            self._last_sign_at = now
            self._show_life()

    def block(self, steps: int) -> Block:
        """``steps`` optimizer steps between synchronised clock readings. Items are those of all processes."""
        before = self._latency.seconds()
        self._synchronize()
        self._items = 0.0
        others = CpuContention()
        started = time.perf_counter()
        for _ in range(steps):
            self.step()
        self._synchronize()
        seconds = time.perf_counter() - started
        stolen, latency = others.share(), math.sqrt(before * self._latency.seconds())
        self.finite = self.finite and bool(torch.isfinite(self._total))
        return Block(round(self._items * self.session.world_size), seconds, steps, stolen, latency)

    def _synchronize(self) -> None:
        self.session.synchronize()
        if self.session.world_size > 1:
            dist.barrier()

    def agree(self, steps: int) -> int:
        """Rank 0's number of steps for the next block, on every rank. 0 ends the trial."""
        if self.session.world_size == 1:
            return steps
        message = torch.tensor([steps], device=self.task.device)
        dist.broadcast(message, src=0)
        return int(message.item())

    def first_step(self) -> float:
        """The first optimizer step, with everything that torch and the loader do once; in seconds."""
        return self._warm_up_block(1)

    def warm_up(self) -> WarmUp:
        """Step until steady, clearly lost, or out of time."""
        started = time.perf_counter()
        paces: list[float] = []
        steps = 0
        while True:
            seconds = time.perf_counter() - started
            steady = self._is_primed(steps, seconds) and self._is_steady(paces)
            over = steady or self._out_of_time(steps, seconds) or self._lost(paces)
            count = self.agree(0 if over else _steps_of_warm_up_block(paces))
            if count == 0:
                return WarmUp(seconds, steps, steady)
            paces.append(self._warm_up_block(count) / count)
            steps += count

    def _is_primed(self, steps: int, seconds: float) -> bool:
        """The loader's first queue is consumed and torch's first-step work is over."""
        settings = self.spec.settings
        queue = settings.num_workers * ((settings.prefetch_factor or 0) + 1)
        return steps >= MIN_WARMUP_STEPS and seconds >= MIN_WARMUP_SECONDS and self.batches >= queue

    def _is_steady(self, paces: list[float]) -> bool:
        """The last blocks agree with those before; fewer blocks are compared where a step takes long."""
        slow = bool(paces) and paces[-1] >= SLOW_STEP_SECONDS
        return is_steady(paces, STEADY_BLOCKS - slow)

    def _out_of_time(self, steps: int, seconds: float) -> bool:
        """The cap is reached. A resident's slow steps need few, since its settings were measured before."""
        slow = seconds / max(1, steps) > SLOW_STEP_SECONDS
        return seconds >= self.spec.warmup_seconds and steps >= (1 if slow and self.spec.resident else MIN_WARMUP_STEPS)

    def _lost(self, paces: list[float]) -> bool:
        """True where two steps in a row are far below the bar already: no warm-up makes up for that."""
        if self.spec.give_up_below <= 0 or len(paces) < 2:
            return False
        bar = self._step_items * self.session.world_size / self.spec.give_up_below
        return min(paces[-2:]) > HOPELESS * bar

    def _warm_up_block(self, steps: int) -> float:
        started = time.perf_counter()
        for _ in range(steps):
            self.step()
        self.session.synchronize()
        return time.perf_counter() - started

    def steps_for(self, seconds: float, pace: float) -> int:
        """Whole steps that fill ``seconds`` (at least a block) at ``pace`` seconds per step."""
        return max(1, math.ceil(max(seconds, MIN_BLOCK_SECONDS) / max(pace, 1e-7)))

    def check_whole_autocast(self) -> None:
        """Losses must also be finite where the user's own loop wraps all of ``compute_loss`` in autocast."""
        with torch.no_grad(), self.session.autocast():
            for _ in range(AUTOCAST_CHECKS):
                self._total += self.task.loss(self.model, next(self.stream)).detach().reshape(())
        self.finite = self.finite and bool(torch.isfinite(self._total))

    def checked_losses(self) -> tuple[float, ...]:
        """Loss of the global batch at each of the first optimizer steps."""
        if not self.losses:
            return ()
        means = torch.stack(self.losses)
        if self.session.world_size > 1:
            dist.all_reduce(means)
            means /= self.session.world_size
        return tuple(float(value) for value in means)


def _steps_of_warm_up_block(paces: list[float]) -> int:
    """As many as fill a block at the latest pace; one where none is known."""
    return max(1, math.ceil(WARMUP_BLOCK_SECONDS / paces[-1])) if paces and paces[-1] else 1
