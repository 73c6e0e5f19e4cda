"""The measured training loop: the user's step, run through the very runtime that training will use."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from autotune.core.measurement import LATENCY_STEAL_LIMIT, MIN_BLOCK_SECONDS, Block
from autotune.runtime.session import Session
from autotune.trial.child.core_latency import CoreLatencyTimer
from autotune.trial.child.cpu_contention import CpuContention
from autotune.trial.child.loaded_task import LoadedTask
from autotune.trial.spec import CHECK_STEPS, TrialSpec

LIFE_SIGN_SECONDS = 0.5
AUTOCAST_CHECKS = 2


def _own_workers(task: LoadedTask) -> dict[str, Any]:
    """The loader workers that the user has today: the runtime changes their number, or says why not."""
    current = task.current()
    count = current.get("num_workers") or 0
    return {"num_workers": count, "persistent_workers": count > 0 and bool(current.get("persistent_workers"))}


def synchronize(device: torch.device) -> None:
    """Wait until ``device`` has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


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
        self.step_items = 0.0
        """Items of the last step, on this rank."""
        self._items = 0.0
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
        mean = loss.detach().reshape(()).float() * self.session.part.weight
        self._total += mean
        if len(self.losses) < CHECK_STEPS:
            self.losses.append(mean)
        self.step_items = self.count(batch) * self.session.part.share
        if self.session.skipped_steps == skipped:
            self._items += self.step_items
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
        others = CpuContention(root=os.getppid())
        started = time.perf_counter()
        for _ in range(steps):
            self.step()
        self._synchronize()
        seconds = time.perf_counter() - started
        taken, latency = others.taken(), math.sqrt(before * self._latency.seconds())
        self.finite = self.finite and bool(torch.isfinite(self._total))
        items = round(self._items * self.session.world_size)
        known = latency if taken.lost <= LATENCY_STEAL_LIMIT else 0.0
        return Block(items, seconds, steps, taken.lost, known, taken.neighbours)

    def _synchronize(self) -> None:
        synchronize(self.session.device)
        if self.session.world_size > 1:
            dist.barrier()

    def agree(self, steps: int) -> int:
        """Rank 0's number of steps for the next block, on every rank. 0 ends the trial."""
        if self.session.world_size == 1:
            return steps
        message = torch.tensor([steps], device=self.task.device)
        dist.broadcast(message, src=0)
        return int(message.item())

    def timed(self, steps: int) -> float:
        """Take ``steps`` optimizer steps; returns this rank's seconds."""
        started = time.perf_counter()
        for _ in range(steps):
            self.step()
        synchronize(self.session.device)
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
