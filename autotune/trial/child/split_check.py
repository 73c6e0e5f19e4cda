"""Whether several processes keep the gradient: one batch whole, and the same batch split as ranks would share it.

Ranks weigh their gradients by samples. That is exact for a mean over samples, and changes training for any other loss:
a mean over tokens, a class-weighted mean, a sum, or a loss that compares the samples of a batch.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._pytree import tree_map
from torch.utils.data import IterableDataset, default_collate

from autotune.core.baseline import DEFAULT_BATCH
from autotune.core.task import unchecked
from autotune.runtime.loader import mover
from autotune.trial.child.loaded_task import Task, run_eagerly, seed_everything
from autotune.trial.child.split_samples import Sharing, Split, read, sharings

MAX_SAMPLES = 16
CHECK_SECONDS = 3.0
"""No gradient is begun that would end later than this."""
ENOUGH_SECONDS = 1.0
"""Nor later than this where one comparison is done."""
CONFIRM_SECONDS = 6.0
"""A difference is confirmed by fewer gradients where that takes until later than this."""
TOLERANCE = 1e-2
"""Relative L2 error of the whole gradient that still counts as the same.

Means over samples reach 1e-6 in fp32, and 1.2e-2 in bf16, where other rounding alone makes half of that. Split by what
they weigh by, class weights of 1 and 1.05 give 3e-2, and a mean over tokens 1.5e-2 where lengths vary by a quarter.
"""
MOST_ROUNDING = 3e-2
"""What rounding in bf16 may change; more than that is random, or changes from call to call."""
NOISE_FACTOR = 5.0
"""An error must be more than this many times what other random numbers and other rounding change."""
SALTS = (1, 2, 3, 4)
"""Other random numbers with which a difference is seen again: what is drawn now and then looks like one."""
QUOTED = 150

REFUSAL = (
    "the loss of a batch is not the mean of its samples' losses (split, {}): another number of processes would change"
    " training; a mean over samples would not"
)
RANDOM = "the loss draws random numbers, or changes from call to call"
SLOW = "one step takes too long"
NOTHING = "the gradient is zero or not finite"

Gradient = list[Tensor | None]


@dataclass(frozen=True)
class SplitVerdict:
    """What the comparison says; neither where there is nothing to say."""

    refusal: str | None = None
    """Why another number of processes would change training."""
    note: str | None = None
    """Why that could not be found out."""


SAME = SplitVerdict()


def check(task: Task, seed: int, clock: Callable[[], float] = time.monotonic) -> SplitVerdict:
    """Compare gradients of whole and split batches. Whatever goes wrong becomes a note."""
    try:
        return _check(task, seed, clock)
    except Exception as error:
        return _unknown(_first_line(error))


def _check(task: Task, seed: int, clock: Callable[[], float]) -> SplitVerdict:
    dataset = task.build_dataset(seed)
    most = min(MAX_SAMPLES, task.current().get("batch_size", DEFAULT_BATCH))
    if isinstance(dataset, IterableDataset) or most < 2:
        return SAME
    seen = read(dataset, clock)
    if len(seen) < 2:
        return SAME
    shared = sharings(seen, most)
    gradients = _Gradients(task, seed, clock)
    gradients.settle_batch_norm(shared[-1].samples)
    notes: list[str] = []
    for mode in MODES:
        mode(gradients.model)
        verdict = _compared(gradients, shared, most // 2)
        if verdict.note is None:
            return verdict
        notes.append(verdict.note)
    return SplitVerdict(note=notes[0])


def _quiet(model: nn.Module) -> None:
    """Training mode, in which some models give other losses, without dropout and with the statistics that are there."""
    model.train()
    for module in model.modules():
        if isinstance(module, _BatchNorm | _DropoutNd):
            module.eval()
        elif isinstance(module, nn.RNNBase | nn.MultiheadAttention):
            module.dropout = 0.0


MODES: tuple[Callable[[nn.Module], object], ...] = (_quiet, nn.Module.eval)
"""Evaluation is for what is still random, or changes while it trains."""


def _compared(gradients: _Gradients, shared: Sequence[Sharing], share: int) -> SplitVerdict:
    """The first difference between a whole batch and its parts; a note where nothing could be compared."""
    gradients.compared, verdict = False, _unknown(NOTHING)
    for verdict in _verdicts(gradients, shared, share):
        if verdict.refusal or verdict == _unknown(RANDOM):
            return verdict
        gradients.compared = gradients.compared or verdict == SAME
    return SAME if gradients.compared else verdict


def _verdicts(gradients: _Gradients, shared: Sequence[Sharing], share: int) -> Iterator[SplitVerdict]:
    """Of every split of every batch, as far as time allows."""
    for sharing in shared:
        count = len(sharing.samples)
        if not gradients.affords(2 * count):
            yield _unknown(SLOW)
            return
        try:
            whole = gradients.of([sharing.samples])
        except Exception as error:
            yield _unknown(_first_line(error))
            continue
        for split in sharing.splits if 0 < _size(whole) < math.inf else ():
            if not gradients.affords(count):
                yield _unknown(SLOW)
                return
            yield _split(gradients, whole, sharing, split, share)


def _split(gradients: _Gradients, whole: Gradient, sharing: Sharing, split: Split, share: int) -> SplitVerdict:
    """Whether the parts have the gradient of the ``whole``, as far as rounding lets it be seen.

    Only parts of at least ``share`` samples must not fail: no process gets fewer.
    """
    parts = sharing.parts(split)
    try:
        error = _off(gradients.of(parts), whole)
    except Exception as failure:
        why = _first_line(failure)
        return _unknown(why) if min(map(len, parts)) < share else _changed(f"it fails with {why}")
    if error <= TOLERANCE:
        return SAME
    if not math.isfinite(error):
        return _changed("its gradient is not finite")
    rounding = _off(gradients.of([sharing.samples], scale=0.7), whole)
    if error <= NOISE_FACTOR * rounding:
        return SAME if rounding <= MOST_ROUNDING else _unknown(RANDOM)
    if _lasts(gradients, whole, sharing, split, rounding):
        return _changed(f"its gradient is off by {error:.0%}")
    return _unknown(RANDOM)


def _lasts(gradients: _Gradients, whole: Gradient, sharing: Sharing, split: Split, noise: float) -> bool:
    """Whether parts differ from the whole with other random numbers too, and far more than wholes among each other."""
    for salt in SALTS:
        if salt > SALTS[0] and not gradients.affords(2 * len(sharing.samples), CONFIRM_SECONDS):
            break
        other = gradients.of([sharing.samples], salt)
        noise = max(noise, _off(other, whole))
        if _off(gradients.of(sharing.parts(split), salt), other) <= max(TOLERANCE, NOISE_FACTOR * noise):
            return False
    return True


def _changed(how: str) -> SplitVerdict:
    return SplitVerdict(refusal=REFUSAL.format(how))


def _unknown(why: str) -> SplitVerdict:
    return SplitVerdict(note=unchecked(why))


class _Gradients:
    """Gradients of a task's loss over given samples.

    Args:
        task: the loaded task file.
        seed: of weights and of what the loss draws.
        clock: seconds.
    """

    def __init__(self, task: Task, seed: int, clock: Callable[[], float]) -> None:
        self.task, self.seed, self.clock = task, seed, clock
        self.model = task.build_model(seed)
        run_eagerly()
        self.parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.collate = getattr(task.module, "collate_fn", None) or default_collate
        self.move = mover(torch.device(task.device), non_blocking=False)
        self.started, self.compared = clock(), False
        self.pace = 0.0
        """Seconds of one sample; the first gradient, with all that is done once, is slow."""

    def affords(self, samples: int, within: float | None = None) -> bool:
        """Whether a gradient over so many samples ends in time; there is less of it once something is compared."""
        limit = within or (ENOUGH_SECONDS if self.compared else CHECK_SECONDS)
        return self.clock() - self.started + self.pace * samples <= limit

    def of(self, parts: Sequence[Sequence[Any]], salt: int = 0, scale: float = 1.0) -> Gradient:
        """The gradient over all parts, each weighted by its samples, as several processes take it.

        Args:
            parts: samples of each part.
            salt: other random numbers where it is another number.
            scale: of the loss; divided out again. It changes what is rounded.
        """
        count = sum(len(part) for part in parts)
        begun = self.clock()
        self._forget()
        for part in parts:
            loss = self._loss(part, self.seed + salt)
            if loss.requires_grad:
                torch.autograd.backward(loss * (scale * len(part) / count))
        found = [p.grad if p.grad is None or scale == 1.0 else p.grad / scale for p in self.parameters]
        self._forget()
        pace = (self.clock() - begun) / count
        self.pace = min(self.pace or pace, pace)
        return found

    def settle_batch_norm(self, samples: Sequence[Any]) -> None:
        """Give BatchNorm the statistics of ``samples``: a deep network overflows with those it begins with."""
        layers = [module for module in self.model.modules() if isinstance(module, _BatchNorm)]
        for layer in layers:
            layer.momentum = 1.0
            if layer.running_mean is None:
                layer.running_mean = torch.zeros(layer.num_features, device=self.task.device)
                layer.running_var = torch.ones(layer.num_features, device=self.task.device)
                layer.track_running_stats = True
        if layers:
            try:
                with torch.no_grad():
                    self._loss(samples, self.seed)
            except Exception:
                return  # the comparison will say so

    def _loss(self, samples: Sequence[Any], seed: int) -> Tensor:
        seed_everything(seed)
        batch = self.collate([_fresh(sample) for sample in samples])
        return self.task.loss(self.model, batch if self.move is None else self.move(batch))

    def _forget(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None


def _fresh(sample: Any) -> Any:
    """A copy: some collate functions change what they are given. A deep one would copy all that a view is of."""
    return tree_map(_copied, sample)


def _copied(leaf: Any) -> Any:
    try:
        return leaf.clone() if isinstance(leaf, Tensor) else copy.copy(leaf)
    except Exception:
        return leaf


def _off(found: Gradient, whole: Gradient) -> float:
    """L2 norm of the difference, relative to that of ``whole``."""
    return _size([_difference(one, other) for one, other in zip(found, whole, strict=True)]) / _size(whole)


def _difference(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return one if other is None else other if one is None else one - other


def _size(gradient: Gradient) -> float:
    """L2 norm over all parameters."""
    return math.hypot(*(_norm(part) for part in gradient if part is not None))


def _norm(part: Tensor) -> float:
    values = part.coalesce().values() if part.is_sparse else part
    values = torch.view_as_real(values) if values.is_complex() else values
    return float(torch.linalg.vector_norm(values, dtype=torch.promote_types(values.dtype, torch.float32)))


def _first_line(error: Exception) -> str:
    """What an error says, on one short line."""
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return text if len(text) <= QUOTED else f"{text[: QUOTED - 3]}..."
