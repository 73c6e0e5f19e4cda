"""Record the first training steps of one rank of a script, to find if several ranks share the work of one."""

from __future__ import annotations

import gc
import signal
from collections.abc import Mapping
from dataclasses import asdict
from statistics import geometric_mean
from typing import Any

import torch.distributed as dist
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader

from autotune.knobs.optimizer_impl import parameters_of
from autotune.runtime import fingerprints
from autotune.runtime.digests import digest
from autotune.runtime.loaders import length
from autotune.scripts import adapters
from autotune.scripts.hooks import Hooks
from autotune.trial.child.first_steps import norm
from autotune.trial.child.measured_loop import MeasuredLoop, Steps
from autotune.trial.child.measuring import Tuner
from autotune.trial.child.task import batch_length
from autotune.trial.messages import EVIDENCE_STEPS, RankEvidence, TrialReport

MOST_BATCHES = 64
TOO_FEW = "not every optimizer made a step within {} batches"
PLAIN = (bool, int, float, str)


def recording(loop: MeasuredLoop, tuner: Tuner, hooks: Hooks) -> Steps[TrialReport]:
    """Make steps until every optimizer has stepped, send what was seen, and wait for the end."""
    recorder, reads = StepRecorder(hooks), fingerprints.of_loader(loop.loader)
    loop.on_batch = recorder.takes
    while not recorder.is_enough():
        if len(recorder.batches) >= MOST_BATCHES:
            raise RuntimeError(TOO_FEW.format(MOST_BATCHES))
        yield
    evidence = recorder.evidence(tuner.rank, loop.loader, reads)
    tuner.connection.send({"event": "evidence", "evidence": asdict(evidence)})
    while True:  # the tuner ends all ranks together: others may still need this one
        signal.pause()


class StepRecorder:
    """Records the batches and steps of this rank.

    Args:
        hooks: know the script's optimizers.
    """

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks
        self.batches: list[str] = []
        self._samples = 0
        self._first_weights = ""
        self._stepped: dict[int, int] = {}
        self._batches_at: list[int] = []
        self._gradients: list[float] = []
        register_optimizer_step_post_hook(self._steps)

    def takes(self, batch: Any) -> None:
        """Record a batch."""
        if not self.batches:
            self._samples, self._first_weights = batch_length(batch), self._weights()
        self.batches.append(digest(batch))

    def _steps(self, optimizer: Optimizer, *_: Any) -> None:
        """Record the step of an optimizer; its gradients are still there."""
        self._stepped[id(optimizer)] = self._stepped.get(id(optimizer), 0) + 1
        if optimizer is self.hooks.optimizers[0]:
            self._batches_at.append(len(self.batches))
            self._gradients.append(norm(p.grad for p in parameters_of(optimizer)))

    def is_enough(self) -> bool:
        """Return whether each optimizer that is held has stepped, and the first one often enough."""
        all_stepped = all(id(optimizer) in self._stepped for optimizer in self.hooks.optimizers)
        return all_stepped and len(self._batches_at) >= EVIDENCE_STEPS

    def evidence(self, rank: int, loader: DataLoader[Any], reads: str) -> RankEvidence:
        """Return what was seen of this ``rank``, which trains on ``loader``; ``reads`` is the fingerprint of that."""
        grouped = dist.is_available() and dist.is_initialized()
        weights = self._weights()
        steps, gradients = self._batches_at[:EVIDENCE_STEPS], self._gradients[:EVIDENCE_STEPS]
        return RankEvidence(
            rank=rank,
            world=dist.get_world_size() if grouped else 1,
            backend=_backend() if grouped else "",
            samples=self._samples,
            batches=tuple(self.batches[:EVIDENCE_STEPS]),
            epoch=length(loader),
            batches_per_step=(steps[-1] - steps[0]) / (len(steps) - 1),
            weights=weights,
            changed=weights != self._first_weights,
            gradient=geometric_mean(gradients) if all(gradients) else 0.0,
            options=tuple(_options(group) for optimizer in self.hooks.optimizers for group in optimizer.param_groups),
            schedules=_schedules(),
            loader=reads,
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
