"""Looks at the first training steps of one rank of a script, and tells the tuner how it trains."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import math
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from autotune.knobs.optimizer_impl import parameters_of
from autotune.runtime.loaders import reads_like
from autotune.scripts.hooks import Begin, Hooks, Listener
from autotune.trial.child.loaded_task import batch_length
from autotune.trial.child.reports import send_report
from autotune.trial.child.scout import is_training
from autotune.trial.child.script_run import Ended
from autotune.trial.evidence import STEPS, RankEvidence
from autotune.trial.unix_connection import UnixConnection
from autotune.trial.user_errors import error_report

MOST_BATCHES = 64
TOO_SHORT = "the script ended before all its optimizers had made {} steps: let it train for longer"
TOO_FEW = "not every optimizer made a step within {} batches"
LIGHTNING = "Lightning starts as many as its own Trainer(devices=...) says"
PLAIN = (bool, int, float, str)


class Witness(Listener):
    """Watches one rank until every optimizer has stepped, tells what it saw, and then waits for its end.

    Args:
        connection: to the tuner.
        rank: this process.
        ranks: of the trial.
    """

    def __init__(self, connection: UnixConnection, rank: int, ranks: int) -> None:
        self.connection, self.rank, self.ranks = connection, rank, ranks
        self.hooks = Hooks()
        self._skip = 0
        self._loader: DataLoader[Any] | None = None
        self._samples = 0
        self._elements: list[float] = []
        self._batches: list[str] = []
        self._first_weights = ""
        self._stepped: dict[int, int] = {}
        self._batches_at: list[int] = []
        self._gradients: list[float] = []

    def attend(self, hooks: Hooks, skip: int) -> None:
        """Look at what ``hooks`` report from here on, past ``skip`` loaders."""
        self.hooks, self._skip = hooks, skip

    def iterates(self, loader: DataLoader[Any], begin: Begin) -> Iterator[Any]:
        """Passes over the training loader are looked at."""
        if not is_training(self.hooks):
            return begin()
        if self._loader is None and self._skip > 0:
            self._skip -= 1
            return begin()
        if self._loader is not None and not reads_like(loader, self._loader):
            return begin()
        self._loader = loader
        return _Seen(self, begin(), loader)

    def takes(self, batch: Any) -> None:
        """A batch comes: the steps before it are over."""
        self.connection.send({"event": "phase", "phase": "starting"})
        if self._is_enough():
            self._tell()
        if len(self._batches) >= MOST_BATCHES:
            self._give_up(TOO_FEW.format(MOST_BATCHES))
        if not self._batches:
            self._samples, self._first_weights = batch_length(batch), self._weights()
        tensors = list(_tensors(batch))
        self._batches.append(digest(tensors))
        self._elements.append(sum(tensor.numel() for tensor in tensors) / max(1, batch_length(batch)))

    def steps(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped; its gradients are still there."""
        self._stepped[id(optimizer)] = self._stepped.get(id(optimizer), 0) + 1
        if optimizer is self.hooks.optimizers[0]:
            self._batches_at.append(len(self._batches))
            self._gradients.append(_gradient(optimizer))

    def script_ended(self, ended: Ended) -> int:
        """The script came to its end before enough was seen."""
        report = error_report(ended.failure or RuntimeError(TOO_SHORT.format(STEPS)))
        send_report(report, self.connection, self.rank)
        return 1

    def _is_enough(self) -> bool:
        """Each optimizer that is held has stepped, and the first one often enough."""
        all_stepped = all(id(optimizer) in self._stepped for optimizer in self.hooks.optimizers)
        return all_stepped and len(self._batches_at) >= STEPS

    def _tell(self) -> None:
        self.connection.send({"event": "evidence", "evidence": asdict(self._evidence())})
        _wait_for_the_end()

    def _give_up(self, reason: str) -> None:
        send_report(error_report(RuntimeError(reason)), self.connection, self.rank)
        os._exit(1)

    def _evidence(self) -> RankEvidence:
        grouped = dist.is_available() and dist.is_initialized()
        weights = self._weights()
        steps = self._batches_at[:STEPS]
        return RankEvidence(
            rank=self.rank,
            world=dist.get_world_size() if grouped else 1,
            backend=_backend() if grouped else "",
            samples=self._samples,
            elements=sum(self._elements[:STEPS]) / len(self._elements[:STEPS]),
            batches=tuple(self._batches[:STEPS]),
            epoch=_batches_of_epoch(self._loader),
            batches_per_step=(steps[-1] - steps[0]) / (len(steps) - 1),
            weights=weights,
            changed=weights != self._first_weights,
            gradient=_mean(self._gradients[:STEPS]),
            options=tuple(_options(group) for optimizer in self.hooks.optimizers for group in optimizer.param_groups),
            schedules=_schedules(),
            launcher=LIGHTNING if {"lightning.pytorch", "pytorch_lightning"} & set(sys.modules) else "",
        )

    def _weights(self) -> str:
        return digest(parameters_of(*self.hooks.optimizers))


class _Seen(Iterator[Any]):
    """A pass that a witness looks at."""

    def __init__(self, witness: Witness, passing: Iterator[Any], loader: DataLoader[Any]) -> None:
        self._witness, self._passing, self._loader = witness, passing, loader

    def __next__(self) -> Any:
        batch = self._witness.hooks.unseen(self._passing.__next__)
        self._witness.hooks.unseen(lambda: self._witness.takes(batch))
        return batch

    def __len__(self) -> int:
        return len(self._loader)


def _wait_for_the_end() -> NoReturn:
    """Other ranks may still need this one; the tuner ends all of them together."""
    while True:
        signal.pause()


def _backend() -> str:
    """What the script's process group exchanges tensors of the CPU with."""
    told = dict(pair.split(":") for pair in str(dist.get_backend_config()).split(",") if ":" in pair)
    return told.get("cpu", str(dist.get_backend()))


def _batches_of_epoch(loader: DataLoader[Any] | None) -> int | None:
    with contextlib.suppress(TypeError, NotImplementedError):
        return None if loader is None else len(loader)
    return None


def _tensors(value: Any) -> Iterator[Tensor]:
    """Those in a batch, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def digest(tensors: Iterable[Tensor]) -> str:
    """The same for the same bits only."""
    digest = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data if flat.numel() else b"")
    return digest.hexdigest()


def _gradient(optimizer: Optimizer) -> float:
    """Norm of all gradients of ``optimizer``."""
    gradients = (p.grad.detach() for p in parameters_of(optimizer) if p.grad is not None)
    return math.sqrt(sum(float(gradient.float().norm()) ** 2 for gradient in gradients))


def _mean(values: list[float]) -> float:
    """Geometric mean; 0 where one of ``values`` is."""
    if not values or min(values) <= 0:
        return 0.0
    return math.exp(sum(map(math.log, values)) / len(values))


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    """Learning rate and the like of one parameter group."""
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in group.items()}
    return {name: value for name, value in plain.items() if name != "params" and _is_plain(value)}


def _is_plain(value: Any) -> bool:
    return all(isinstance(part, PLAIN) for part in (value if isinstance(value, list) else [value]))


def _schedules() -> tuple[int, ...]:
    """How often each learning rate scheduler of this process has stepped."""
    return tuple(sorted(found.last_epoch for found in gc.get_objects() if issubclass(type(found), LRScheduler)))
