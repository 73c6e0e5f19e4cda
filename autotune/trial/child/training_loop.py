"""The training loop of a task file: the user's step, run through the very runtime that training will use."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from autotune.runtime.session import Session
from autotune.trial.child.loaded_task import LoadedTask
from autotune.trial.child.measured_loop import MeasuredLoop, Result, Steps
from autotune.trial.spec import TrialSpec

AUTOCAST_CHECKS = 2


def _own_workers(task: LoadedTask) -> dict[str, Any]:
    """The loader workers that the user has today: the runtime changes their number, or says why not."""
    current = task.current()
    count = current.get("num_workers") or 0
    return {"num_workers": count, "persistent_workers": count > 0 and bool(current.get("persistent_workers"))}


class TrainingLoop(MeasuredLoop):
    """One rank's model, optimizer and loader.

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
        super().__init__(session, spec, show_life)
        self.task = task
        model = task.build_model(spec.seed)
        optimizer = task.build_optimizer(model)
        loader = task.build_loader(spec.settings.global_batch, spec.seed, **_own_workers(task))
        self.model, self.optimizer, self.loader = session.prepare(
            model, optimizer, loader, find_unused_parameters=find_unused_parameters
        )
        self.count = task.counter()
        self.stream = self._batches()

    def _batches(self) -> Iterator[Any]:
        while True:
            empty = True
            for batch in self.loader:
                empty = False
                yield batch
            if empty:
                raise ValueError("the DataLoader yielded no batch: the dataset is empty or smaller than one batch")

    def run(self, steps: Steps[Result]) -> Result:
        """Make every step that ``steps`` ask for; returns what they return."""
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: Result = end.value
                return result
            self.step()

    def step(self) -> None:
        """One optimizer step, on one batch."""
        batch = self._next_batch()
        skipped = self.session.skipped_steps
        loss = self.task.loss(self.model, batch)
        self.session.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        items = self.count(batch) * self.session.part.share
        self.made_step(items, loss.detach(), skipped=self.session.skipped_steps != skipped)

    def _next_batch(self) -> Any:
        asked = time.perf_counter()
        batch = self.next_batch(self.stream.__next__)
        self.waited += time.perf_counter() - asked
        self.batches += 1
        return batch

    def check_whole_autocast(self) -> None:
        """Losses must also be finite where the user's own loop wraps all of ``compute_loss`` in autocast."""
        with torch.no_grad(), self.session.autocast():
            for _ in range(AUTOCAST_CHECKS):
                self._total += self.task.loss(self.model, next(self.stream)).detach().reshape(())
        self.finite = self.finite and bool(torch.isfinite(self._total))
