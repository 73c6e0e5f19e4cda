"""Record the first training steps of one rank of a script, to find if several ranks share the work of one."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from statistics import geometric_mean
from typing import Any

import torch.distributed as dist
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from autotune.knobs.optimizer_impl import parameters_of
from autotune.runtime import fingerprints
from autotune.runtime.digests import digest
from autotune.runtime.loaders import length
from autotune.scripts import adapters
from autotune.scripts.hooks import Begin, Hooks, Listener
from autotune.trial.child.first_steps import norm
from autotune.trial.child.probe_run import Ended, Pass, TrainingLoader
from autotune.trial.child.task import batch_length
from autotune.trial.messages import EVIDENCE_STEPS, RankEvidence, UnixConnection, error_report, send_report

MOST_BATCHES = 64
TOO_SHORT = "the script ended before all its optimizers had made {} steps: let it train for longer"
TOO_FEW = "not every optimizer made a step within {} batches"
PLAIN = (bool, int, float, str)


class StepRecorder(Listener):
    """Records one rank until every optimizer has stepped, sends what it has seen, and then waits for its end.

    Args:
        connection: to the tuner.
        rank: this process.
        hooks: report nothing of what the recorder does itself.
        training: recognises the loader that the script trains on.
    """

    def __init__(self, connection: UnixConnection, rank: int, hooks: Hooks, training: TrainingLoader) -> None:
        self.connection, self.rank, self.hooks, self.training = connection, rank, hooks, training
        self._reads = ""
        self._samples = 0
        self._batches: list[str] = []
        self._first_weights = ""
        self._stepped: dict[int, int] = {}
        self._batches_at: list[int] = []
        self._gradients: list[float] = []

    def iterates(self, loader: DataLoader[Any], begin: Begin) -> Iterator[Any]:
        """Record passes over the training loader."""
        if not self.training.is_it(loader):
            return begin()
        self._reads = self._reads or fingerprints.of_loader(loader)
        return Pass(self.hooks, begin(), loader, self.takes)

    def takes(self, batch: Any) -> None:
        """Record a batch: the steps before it are over."""
        self.connection.send({"event": "phase", "phase": "starting"})
        if self._is_enough():
            self.connection.send({"event": "evidence", "evidence": asdict(self._evidence())})
            while True:  # the tuner ends all ranks together: others may still need this one
                signal.pause()
        if len(self._batches) >= MOST_BATCHES:
            send_report(error_report(RuntimeError(TOO_FEW.format(MOST_BATCHES))), self.connection, self.rank)
            os._exit(1)
        if not self._batches:
            self._samples, self._first_weights = batch_length(batch), self._weights()
        self._batches.append(digest(batch))

    def steps(self, optimizer: Optimizer) -> None:
        """Record the step of an optimizer; its gradients are still there."""
        self._stepped[id(optimizer)] = self._stepped.get(id(optimizer), 0) + 1
        if optimizer is self.hooks.optimizers[0]:
            self._batches_at.append(len(self._batches))
            self._gradients.append(norm(p.grad for p in parameters_of(optimizer)))

    def script_ended(self, ended: Ended) -> int:
        """Report that the script came to its end before enough was seen."""
        report = error_report(ended.failure or RuntimeError(TOO_SHORT.format(EVIDENCE_STEPS)))
        send_report(report, self.connection, self.rank)
        return 1

    def _is_enough(self) -> bool:
        """Return whether each optimizer that is held has stepped, and the first one often enough."""
        all_stepped = all(id(optimizer) in self._stepped for optimizer in self.hooks.optimizers)
        return all_stepped and len(self._batches_at) >= EVIDENCE_STEPS

    def _evidence(self) -> RankEvidence:
        grouped = dist.is_available() and dist.is_initialized()
        weights = self._weights()
        steps, gradients = self._batches_at[:EVIDENCE_STEPS], self._gradients[:EVIDENCE_STEPS]
        return RankEvidence(
            rank=self.rank,
            world=dist.get_world_size() if grouped else 1,
            backend=_backend() if grouped else "",
            samples=self._samples,
            batches=tuple(self._batches[:EVIDENCE_STEPS]),
            epoch=length(self.training.loader),
            batches_per_step=(steps[-1] - steps[0]) / (len(steps) - 1),
            weights=weights,
            changed=weights != self._first_weights,
            gradient=geometric_mean(gradients) if all(gradients) else 0.0,
            options=tuple(_options(group) for optimizer in self.hooks.optimizers for group in optimizer.param_groups),
            schedules=_schedules(),
            loader=self._reads,
            advice=adapters.several_processes(),
        )

    def _weights(self) -> str:
        return digest([parameter.detach() for parameter in parameters_of(*self.hooks.optimizers)])


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


def _schedules() -> tuple[int, ...]:
    """Return how often each learning rate scheduler of this process has stepped."""
    return tuple(sorted(found.last_epoch for found in gc.get_objects() if issubclass(type(found), LRScheduler)))
