"""Whether several processes keep the gradient: one batch whole, and the same batch split as ranks would share it.

Ranks weigh their gradients by samples. That is exact for a mean over samples, and changes training for any other loss:
a mean over tokens, a class-weighted mean, a sum, or a loss that compares the samples of a batch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.utils.data import IterableDataset

from autotune.core.baseline import DEFAULT_BATCH
from autotune.core.lines import cut, first_line
from autotune.core.task import unchecked
from autotune.trial.child.loaded_task import LoadedTask
from autotune.trial.child.split_gradients import Gradient, Gradients, norm, relative_error
from autotune.trial.child.split_samples import Split, SplitBatch, read_samples, split_batches

MAX_SAMPLES = 16
CHECK_SECONDS = 3.0
"""A gradient that would end later than this is not started."""
ENOUGH_SECONDS = 1.0
"""The same, once one comparison is done."""
CONFIRM_SECONDS = 6.0
"""The same for gradients that confirm a difference."""
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

CHANGED = (
    "the loss of a batch is not the mean of its samples' losses (split, {}): another number of processes would change"
    " training; a mean over samples would not"
)
RANDOM = "the loss draws random numbers, or changes from call to call"
SLOW = "one step takes too long"
NOTHING = "the gradient is zero or not finite"


@dataclass(frozen=True)
class SplitResult:
    """Neither field is set where parts have the gradient of the whole."""

    why_not: str | None = None
    """Why another number of processes would change training."""
    note: str | None = None
    """Why that could not be found out."""


SAME = SplitResult()


def check(task: LoadedTask, seed: int, clock: Callable[[], float] = time.monotonic) -> SplitResult:
    """Compare gradients of whole and split batches. Whatever goes wrong becomes a note."""
    try:
        return _check(task, seed, clock)
    except Exception as error:
        return _unknown(_first_line(error))


def _check(task: LoadedTask, seed: int, clock: Callable[[], float]) -> SplitResult:
    dataset = task.build_dataset(seed)
    most = min(MAX_SAMPLES, task.current().get("batch_size", DEFAULT_BATCH))
    if isinstance(dataset, IterableDataset) or most < 2:
        return SAME
    samples = read_samples(dataset, clock)
    if len(samples) < 2:
        return SAME
    batches = split_batches(samples, most)
    gradients = Gradients(task, seed, clock)
    comparison = _Comparison(gradients, most // 2, clock)
    gradients.settle_batch_norm(batches[-1].samples)
    notes: list[str] = []
    for mode in MODES:
        mode(gradients.model)
        result = comparison.run(batches)
        if result.note is None:
            return result
        notes.append(result.note)
    return SplitResult(note=notes[0])


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


class _Comparison:
    """Compares gradients of whole batches with those of their parts, as far as time allows.

    Args:
        gradients: of the user's loss.
        share: the fewest samples that a process gets: smaller parts may fail.
        clock: gives seconds.
    """

    def __init__(self, gradients: Gradients, share: int, clock: Callable[[], float]) -> None:
        self.gradients, self.share, self.clock = gradients, share, clock
        self.started = clock()
        self.limit = CHECK_SECONDS

    def run(self, batches: Sequence[SplitBatch]) -> SplitResult:
        """The first difference between a whole batch and its parts; a note where nothing could be compared."""
        self.limit, result = CHECK_SECONDS, _unknown(NOTHING)
        for result in self._results(batches):
            if result.why_not or result == _unknown(RANDOM):
                return result
            if result == SAME:
                self.limit = ENOUGH_SECONDS
        return SAME if self.limit == ENOUGH_SECONDS else result

    def _results(self, batches: Sequence[SplitBatch]) -> Iterator[SplitResult]:
        """Of every split of every batch."""
        for batch in batches:
            count = len(batch.samples)
            if not self._affords(2 * count, self.limit):
                yield _unknown(SLOW)
                return
            try:
                whole = self.gradients.of([batch.samples])
            except Exception as error:
                yield _unknown(_first_line(error))
                continue
            for split in batch.splits if 0 < norm(whole) < math.inf else ():
                if not self._affords(count, self.limit):
                    yield _unknown(SLOW)
                    return
                yield self._result(whole, batch, split)

    def _affords(self, samples: int, limit: float) -> bool:
        """Whether a gradient over so many samples ends within ``limit`` seconds of the start."""
        return self.clock() - self.started + self.gradients.pace * samples <= limit

    def _result(self, whole: Gradient, batch: SplitBatch, split: Split) -> SplitResult:
        """Whether the parts have the gradient of the ``whole``, as far as rounding lets it be seen."""
        parts = batch.parts(split)
        try:
            error = relative_error(self.gradients.of(parts), whole)
        except Exception as failure:
            why = _first_line(failure)
            return _unknown(why) if min(map(len, parts)) < self.share else _changed(f"it fails with {why}")
        if error <= TOLERANCE:
            return SAME
        if not math.isfinite(error):
            return _changed("its gradient is not finite")
        rounding = relative_error(self.gradients.of([batch.samples], scale=0.7), whole)
        if error <= NOISE_FACTOR * rounding:
            return SAME if rounding <= MOST_ROUNDING else _unknown(RANDOM)
        if self._lasts(whole, batch, split, rounding):
            return _changed(f"its gradient is off by {error:.0%}")
        return _unknown(RANDOM)

    def _lasts(self, whole: Gradient, batch: SplitBatch, split: Split, noise: float) -> bool:
        """Whether parts differ from the whole with other random numbers too, and far more than two wholes do."""
        for salt in SALTS:
            if salt > SALTS[0] and not self._affords(2 * len(batch.samples), CONFIRM_SECONDS):
                break
            other = self.gradients.of([batch.samples], salt)
            noise = max(noise, relative_error(other, whole))
            error = relative_error(self.gradients.of(batch.parts(split), salt), other)
            if error <= max(TOLERANCE, NOISE_FACTOR * noise):
                return False
        return True


def _changed(how: str) -> SplitResult:
    return SplitResult(why_not=CHANGED.format(how))


def _unknown(why: str) -> SplitResult:
    return SplitResult(note=unchecked(why))


def _first_line(error: Exception) -> str:
    """What an error says, on one short line."""
    said = first_line(str(error), QUOTED)
    return cut(f"{type(error).__name__}: {said}" if said else type(error).__name__, QUOTED)
