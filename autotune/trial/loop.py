"""The measured training loop: the user's step, run through the very runtime that training will use."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
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
from autotune.trial.crossing import Crossing
from autotune.trial.neighbours import CpuWatch
from autotune.trial.spec import CHECK_STEPS, TrialSpec
from autotune.trial.task import Task

WARMUP_BLOCK_SECONDS = 0.04
PULSE_SECONDS = 0.5
AUTOCAST_CHECKS = 2
HOPELESS = 2.0
"""Steps this many times too slow for the bar end the warm-up at once."""


def _own_workers(task: Task) -> dict[str, Any]:
    """The loader workers that the user has today: the runtime changes their number, or says why not."""
    current = task.current()
    count = current.get("num_workers") or 0
    return {"num_workers": count, "persistent_workers": count > 0 and bool(current.get("persistent_workers"))}


class TrainingLoop:
    """One rank's model, optimizer and loader, stepped in blocks that all ranks agree on.

    Args:
        task: the loaded task file.
        session: the runtime with the trial's settings applied.
        spec: the trial.
        pulse: called at least every half second of stepping: proof of life.
        find_unused_parameters: see `Session.prepare`.
    """

    def __init__(
        self,
        task: Task,
        session: Session,
        spec: TrialSpec,
        pulse: Callable[[], None],
        find_unused_parameters: bool = False,
    ) -> None:
        self.task, self.session, self.spec, self.pulse = task, session, spec, pulse
        model = task.build_model(spec.seed)
        optimizer = task.build_optimizer(model)
        loader = task.build_loader(spec.settings.global_batch, spec.seed, **_own_workers(task))
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
        self._pulsed = time.perf_counter()
        self._crossing = Crossing(task.device, spec.settings.threads)

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
        mean = loss.detach().reshape(()).float() * self.session.part.weight
        self._total += mean
        if len(self.losses) < CHECK_STEPS:
            self.losses.append(mean)
        self._step_items = self.count(batch) * self.session.part.share
        if self.session.skipped_steps == skipped:
            self._items += self._step_items
        self._show_life()

    def _next_batch(self) -> Any:
        asked = time.perf_counter()
        batch = next(self.stream)
        self.waited += time.perf_counter() - asked
        self.batches += 1
        return batch

    def _show_life(self) -> None:
        now = time.perf_counter()
        if now - self._pulsed > PULSE_SECONDS:
            self._pulsed = now
            self.pulse()

    def block(self, steps: int) -> Block:
        """``steps`` optimizer steps between synchronised clock readings. Items are those of all processes."""
        before = self._crossing.seconds()
        self._synchronize()
        self._items = 0.0
        watch = CpuWatch()
        started = time.perf_counter()
        for _ in range(steps):
            self.step()
        self._synchronize()
        seconds = time.perf_counter() - started
        stolen, crossing = watch.taken(), math.sqrt(before * self._crossing.seconds())
        self.finite = self.finite and bool(torch.isfinite(self._total))
        return Block(round(self._items * self.session.world_size), seconds, steps, stolen, crossing)

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
        return self._warm_block(1)

    def warm_up(self) -> tuple[float, int, bool]:
        """Step until steady, or clearly lost: (seconds, steps, steady)."""
        started = time.perf_counter()
        paces: list[float] = []
        steps = 0
        while True:
            elapsed = time.perf_counter() - started
            due = elapsed >= self.spec.warmup_seconds and steps >= self._least_steps(elapsed, steps)
            pace = paces[-1] if paces else 0.0
            wanted = STEADY_BLOCKS if pace < SLOW_STEP_SECONDS else STEADY_BLOCKS - 1
            steady = self._warm(steps, elapsed) and is_steady(paces, wanted)
            count = max(1, math.ceil(WARMUP_BLOCK_SECONDS / pace)) if pace else 1
            count = self.agree(0 if steady or due or self._lost(paces) else count)
            if count == 0:
                return elapsed, steps, steady
            paces.append(self._warm_block(count) / count)
            steps += count

    def _least_steps(self, elapsed: float, steps: int) -> int:
        """Steps that a warm-up needs; a resident's slow steps need fewer, since its settings were measured before."""
        slow = elapsed / max(1, steps) > SLOW_STEP_SECONDS
        return 1 if slow and self.spec.resident else MIN_WARMUP_STEPS

    def _lost(self, paces: list[float]) -> bool:
        """True where two steps in a row are far below the bar already: no warm-up makes up for that."""
        if self.spec.give_up_below <= 0 or len(paces) < 2:
            return False
        bar = self._step_items * self.session.world_size / self.spec.give_up_below
        return min(paces[-2:]) > HOPELESS * bar

    def _warm_block(self, steps: int) -> float:
        started = time.perf_counter()
        for _ in range(steps):
            self.step()
        self.session.synchronize()
        return time.perf_counter() - started

    def _warm(self, steps: int, elapsed: float) -> bool:
        """The loader's primed queue is consumed and torch's first-step work is over."""
        settings = self.spec.settings
        primed = settings.num_workers * ((settings.prefetch_factor or 0) + 1)
        return steps >= MIN_WARMUP_STEPS and elapsed >= MIN_WARMUP_SECONDS and self.batches >= primed

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
