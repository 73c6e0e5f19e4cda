"""The first steps of a training, recorded and compared with those of another trial from the same state.

What a person would compare: every batch in order, losses, gradients, weights and buffers, random numbers, and what the
data set holds afterwards. While samples are read, random numbers follow from the indices of the batch, so that
augmentations are the same in any worker; what differs then is the data set's own doing.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import pickle
import random
import time
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import IterableDataset, _utils

from autotune.knobs.change import Method, replace
from autotune.knobs.knob import EXACT, ROUNDING
from autotune.knobs.optimizer_impl import parameters_of
from autotune.knobs.settings import BY_NAME, Settings
from autotune.runtime import random_state
from autotune.runtime.fingerprints import Walk, digest, is_handle
from autotune.runtime.loaders import length
from autotune.trial.child.beside import LARGEST, state_of
from autotune.trial.child.snapshot import order_of

LEAST_STEPS, MOST_STEPS = 16, 64
MOST_SECONDS = 2.0
"""Seconds that the reference records at most, whatever the number of steps."""
END_SECONDS = 1.0
"""To reach the end of a stream, beyond the recorded steps."""
PAST_EPOCH = 2
"""Steps past the end of an epoch, or of the second one of a small data set."""
MOST_TENSORS, MOST_ELEMENTS = 256, 512
"""Elements of weights that are kept to compare them; a digest of all shows if bits are equal."""
GRADIENTS = (2e-3, 1e-2, 2e-2)
"""Relative tolerances of the first steps' gradients if sums are made in another order: rounding grows with each step,
a hundredfold within ten steps of a deep network."""
LOSS, LATER_LOSS, WEIGHTS = 1e-2, 5e-2, 0.25
"""The same of the first losses, of later ones, and of weights, as a share of what these have moved."""
FACTOR, FLOOR, KINK = 10.0, 1e-6, 3e-3
"""Of the user's own spread, what settings may differ by (`benchmarks.spread`); what is no difference if there is a
spread; and what is none in a gradient's norm: a unit falls to the other side of a ReLU's kink in one run of many."""
MOST_BYTES = 2**20
DATASET_CHANGES = "your data set changes while it is read"
SEEDS = "your data set seeds the random numbers of its process"
LOGS = "your data set logs or warns, which nobody would see from a worker"
BESIDE = "reading samples changes {}, which nobody would see from a worker"
LOOKS = 3
"""Batches whose reading is looked at for what it changes beside, and in what state it leaves the order."""
AHEAD = "the order of your data is drawn while it is read, and loader workers would draw it earlier"
SHARED = "batches share memory with each other, or with your data set, which copies from a worker do not"
OBJECTS = "batches hold objects that are not the same object when they come from a worker"
NOTED = (
    (torch, "manual_seed", SEEDS),
    (random, "seed", SEEDS),
    (numpy.random, "seed", SEEDS),
    (logging.Logger, "callHandlers", LOGS),
    (warnings, "warn", LOGS),
)
"""Functions that reach beyond the data set, and what a data set does that calls one."""


@dataclass
class Recording:
    """All that the first steps of one trial left behind.

    Attributes:
        batches: a digest of each.
        losses: of each step.
        norms: of the gradients of each step, tensor by tensor.
        weights: digest of parameters and buffers at the end.
        values: some elements of each parameter, before and after.
        random: digest of the random numbers' states when the last batch came, by source.
        order: digests of what samplers hold and of their random numbers, after the first batches and at the end.
        dataset: digest of what the data set holds at the end.
        again: digests of the first batch of a new pass, and of one after the end of a stream.
        rereads: False if the first batch, read again at the end, is another one, or reading the last sample changes
            what the data set holds.
        does: what reading samples does to this process beside reading.
        draws: whether reading samples draws random numbers.
        shares: whether batches share memory.
        objects: a class whose instances a worker copies; empty if batches hold plain data.
    """

    batches: list[str] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    norms: list[list[float]] = field(default_factory=list)
    weights: str = ""
    values: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    random: dict[str, str] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    dataset: str = ""
    again: str = ""
    rereads: bool = True
    does: str = ""
    draws: bool = False
    shares: bool = False
    objects: str = ""


def read(path: Path) -> Recording:
    """Return what was recorded in the file ``path``."""
    return Recording(**torch.load(path, weights_only=False))


class Recorder:
    """Records the first steps of a trial while it makes them, with what is trained by then."""

    def __init__(
        self,
        optimizers: Callable[[], list[Optimizer]],
        buffers: Callable[[], Iterable[Tensor]],
        loaders: Callable[[], list[Any]],
    ) -> None:
        self.found = Recording()
        self._optimizers, self._buffers, self._loaders = optimizers, buffers, loaders
        self._before: dict[int, Tensor] = {}
        self._first: dict[int, tuple[Any, Any, str]] = {}
        self._stack = contextlib.ExitStack()
        self._looks = LOOKS
        self._kept: list[tuple[set[int], Any]] = []

    def __enter__(self) -> Recorder:
        self._stack.callback(register_optimizer_step_pre_hook(self._before_step).remove)
        self._stack.callback(replace(_utils.fetch._MapDatasetFetcher, "fetch", self._fetching))
        self._stack.callback(replace(_utils.fetch._IterableDatasetFetcher, "fetch", self._streaming))
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stack.close()

    def takes(self, batch: Any) -> None:
        """Record a batch, before the loop can change it."""
        walk = Walk(batch)
        self.found.batches.append(walk.digest)
        self.found.random = _random_states()
        if len(self.found.batches) <= LOOKS:
            self.found.order += map(_order, self._loaders())
            self.found.shares |= any(walk.places & places for places, _batch in self._kept)
            self._kept.append((walk.places, batch))  # its memory is not given to the next
        self.found.objects = self.found.objects or walk.objects

    def records_loss(self, loss: Tensor | None) -> None:
        """Record the loss of a step."""
        self.found.losses.append(float("nan") if loss is None else float(loss))

    def _fetching(self, original: Method) -> Method:
        """Let random numbers that reading a batch draws follow from its indices, in workers too."""

        def fetch(fetcher: Any, indices: Any) -> Any:
            state = random_state.read()
            _seed(zlib.crc32(repr(indices).encode()))
            begun = random_state.read()
            try:
                with self._beside(fetcher):
                    samples = original(fetcher, indices)
            finally:
                self.found.draws |= random_state.read() != begun
                random_state.write(state)
            self._first.setdefault(id(fetcher.dataset), (fetcher, indices, digest(samples)))
            return samples

        return fetch

    def _streaming(self, original: Method) -> Method:
        """Look at what reading a stream does beside; its random numbers are its own."""

        def fetch(fetcher: Any, indices: Any) -> Any:
            with self._beside(fetcher):
                return original(fetcher, indices)

        return fetch

    @contextlib.contextmanager
    def _beside(self, fetcher: Any) -> Iterator[None]:
        """Look at what changes beside the data set while a batch is read, for some batches."""
        self._looks -= 1
        looks = self._looks >= 0 and not self.found.does
        before = state_of(fetcher.dataset, fetcher.collate_fn) if looks else {}
        with contextlib.ExitStack() as stack:
            for owner, name, what in NOTED:
                stack.callback(replace(owner, name, partial(self._noting, what)))
            yield
        if not looks:
            return
        after = state_of(fetcher.dataset, fetcher.collate_fn)
        changed = [name for name, value in before.items() if after.get(name, value) != value]
        self.found.does = self.found.does or (BESIDE.format(changed[0]) if changed else "")

    def _noting(self, what: str, original: Method) -> Method:
        """Note calls of a function that reaches beyond the data set."""

        def call(*arguments: Any, **options: Any) -> Any:
            self.found.does = self.found.does or what
            return original(*arguments, **options)

        return call

    def _before_step(self, optimizer: Optimizer, *_: Any) -> None:
        parameters = parameters_of(optimizer)
        for parameter in parameters[:MOST_TENSORS]:
            self._before.setdefault(id(parameter), _some(parameter))
        self.found.norms.append([norm([p.grad]) for p in parameters[:MOST_TENSORS] if p.grad is not None])

    def finish(self) -> Recording:
        """Record what is left behind."""
        found = self.found
        parameters = parameters_of(*self._optimizers())
        found.weights = digest([*(p.detach() for p in parameters), *self._buffers()])
        known = [p for p in parameters if id(p) in self._before][:MOST_TENSORS]
        found.values = [(self._before[id(p)], _some(p)) for p in known]
        found.random = found.random or _random_states()
        for loader in self._loaders():
            found.order.append(_order(loader))
            self._read_again(loader)
        return found

    def _read_again(self, loader: Any) -> None:
        """Find out what reading has changed, and will change."""
        found, dataset = self.found, getattr(loader, "dataset", None)
        first = self._first.get(id(dataset))
        if first is not None:
            fetcher, indices, before = first
            found.rereads &= digest(fetcher.fetch(indices)) == before
        held = digest(dataset, MOST_BYTES)  # larger arrays are compared by reading again
        found.dataset += digest([held, *_to_close(dataset)])
        if isinstance(dataset, IterableDataset):
            with contextlib.suppress(Exception):  # it can be iterated once only
                found.again += digest(next(iter(loader)))
                until = time.monotonic() + END_SECONDS
                for _batch in itertools.takewhile(lambda _: time.monotonic() < until, loader):
                    pass
                found.again += digest(next(iter(loader)))
            return
        if not getattr(loader, "persistent_workers", True):  # these begin the loop's own pass anew
            with contextlib.suppress(Exception):
                found.again += digest(next(iter(loader)))
        last = None if first is None else _instead(indices, (length(dataset) or 0) - 1)
        if last not in (None, -1, [-1]):
            fetcher.fetch(last)
            found.rereads &= digest(dataset, MOST_BYTES) == held


def _to_close(dataset: Any) -> list[str]:
    """Return what a data set has open and would close itself, by name: from workers nothing of it comes back."""
    own = getattr(dataset, "__dict__", {}) if callable(getattr(dataset, "close", None)) else {}
    return sorted(name for name, value in own.items() if is_handle(value))


def _instead(indices: Any, index: int) -> Any:
    """Return what asks for the sample ``index`` as ``indices`` ask for a batch; None if they are no numbers."""
    if isinstance(indices, list) and indices and type(indices[0]) is int:
        return [index]
    return index if type(indices) is int else None


def wanted_steps(batches_of_epoch: int | None) -> int:
    """Return the number of recorded steps: two epochs of a small data set, past the end of a near one, else a few."""
    for epochs in (2, 1):
        if batches_of_epoch and epochs * batches_of_epoch + PAST_EPOCH <= MOST_STEPS:
            return max(LEAST_STEPS, epochs * batches_of_epoch + PAST_EPOCH)
    return LEAST_STEPS


def _seed(number: int) -> None:
    torch.default_generator.manual_seed(number)
    random.seed(number)
    numpy.random.seed(number)


def _random_states() -> dict[str, str]:
    """Return a digest of each source's state."""
    states = pickle.loads(random_state.read())
    return {name: digest(state) for name, state in zip(("torch", "random", "numpy"), states, strict=False)}


def _order(loader: Any) -> str:
    """Return a digest of what decides about the order of the data."""
    parts, sources = order_of(loader)
    return digest([*parts, *(read() for read, _write in sources)], LARGEST)


def _some(parameter: Tensor) -> Tensor:
    """Return some elements of ``parameter``, from all over it."""
    with torch.no_grad():
        flat = parameter.detach().float().cpu().reshape(-1)
        return flat[:: max(1, flat.numel() // MOST_ELEMENTS)].clone()


def norm(gradients: Iterable[Tensor | None]) -> float:
    """Return the L2 norm of all ``gradients`` together."""
    dense = (part.coalesce().values() if part.is_sparse else part for part in gradients if part is not None)
    return math.hypot(*(float(part.detach().abs().double().norm()) for part in dense))


# Comparison -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spread:
    """How far the user's own settings are apart if they make their first steps again.

    Attributes:
        losses: largest distance so far, by step.
        norms: of gradients, likewise, relative to their size.
        weights: as a share of what these have moved.
    """

    losses: tuple[float, ...] = ()
    norms: tuple[float, ...] = ()
    weights: float = 0.0

    @classmethod
    def of(cls, first: Recording, repeats: Sequence[Recording]) -> Spread | None:
        """Return the spread of recordings of the same settings; None if they are equal bit for bit."""
        pairs = [*itertools.combinations((first, *repeats), 2)]
        if not any(True for one, other in pairs for _ in _exact(one, other)):
            return None
        losses = [[abs(a - b) for a, b in zip(one.losses, other.losses, strict=False)] for one, other in pairs]
        norms = [[_distance(a, b) for a, b in zip(one.norms, other.norms, strict=False)] for one, other in pairs]
        weights = max(_movement(one, other) for one, other in pairs)
        return cls(_largest_so_far(losses), _largest_so_far(norms), weights)

    def loss(self, step: int) -> float:
        """Return by how much the loss of ``step`` may differ."""
        return FACTOR * _at(self.losses, step)

    def norm(self, step: int) -> float:
        """Return by how much of their size gradients of ``step`` may differ."""
        return FACTOR * _at(self.norms, step)


def _largest_so_far(rows: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Return the largest value of each column and those before it, and of the one after: a pair may agree by luck."""
    columns = [max(column) for column in zip(*rows, strict=False)]
    return tuple(itertools.accumulate(map(max, columns, [*columns[1:], 0.0]), max))


def _at(values: Sequence[float], step: int) -> float:
    return values[min(step, len(values) - 1)] if values else 0.0


def differences(
    theirs: Recording, ours: Recording, reference: Settings, settings: Settings, repeats: Sequence[Recording] = ()
) -> list[tuple[str, str]]:
    """Return ``(what, how)`` for all in which ``ours``, made with ``settings``, differs from the reference.

    Batches, their order and random numbers are equal, or they differ. What is computed may differ as far as the user's
    own settings do if they make the same steps again: ``theirs`` and ``repeats`` were recorded with those, the
    ``reference``.
    """
    changed = set(settings.difference(reference))
    keeps = {BY_NAME[name].keeps for name in changed}
    same_batches = settings.processes == reference.processes and settings.global_batch == reference.global_batch
    found: list[tuple[str, str]] = []
    if same_batches:
        found += _data(theirs, ours, workers=(reference.num_workers, settings.num_workers))
        if settings.compile == reference.compile:  # a compiled model draws dropout otherwise
            found += _random(theirs, ours)
    if settings.global_batch != reference.global_batch or not keeps <= {EXACT, ROUNDING}:
        return found
    spread = Spread.of(theirs, repeats)
    if keeps <= {EXACT} and spread is None:
        return [*found, *_exact(theirs, ours)]
    return [*found, *_near(theirs, ours, spread or Spread(), rounds=ROUNDING in keeps)]


def _data(theirs: Recording, ours: Recording, workers: tuple[int, int]) -> Iterator[tuple[str, str]]:
    if workers[0] != workers[1]:
        if (theirs.dataset, theirs.again) != (ours.dataset, ours.again) or not (theirs.rereads and ours.rereads):
            yield "dataset", DATASET_CHANGES
        if 0 in workers and (theirs.does or ours.does):
            yield "dataset", theirs.does or ours.does
        if 0 in workers and (theirs.shares or ours.shares):
            yield "batches", SHARED
        if 0 in workers and (theirs.objects or ours.objects):
            yield "batches", f"{OBJECTS} ({theirs.objects or ours.objects})"
    steps = zip(theirs.batches, ours.batches, strict=False)
    odd = next((number for number, (one, other) in enumerate(steps) if one != other), None)
    if odd is not None:
        yield "batches", f"batch {odd + 1} holds other data"
    if theirs.order != ours.order:
        yield "batches", AHEAD


def _random(theirs: Recording, ours: Recording) -> Iterator[tuple[str, str]]:
    odd = [name for name, state in theirs.random.items() if ours.random.get(name) != state]
    if odd:
        yield "random", f"the random numbers of {' and '.join(odd)} differ afterwards"


def _exact(theirs: Recording, ours: Recording) -> Iterator[tuple[str, str]]:
    steps = zip(theirs.losses, ours.losses, strict=False)
    odd = next((n for n, (one, other) in enumerate(steps) if one != other and one == one), None)
    if odd is not None:
        yield "losses", f"the loss of step {odd + 1} is {ours.losses[odd]:.6g}, not {theirs.losses[odd]:.6g}"
    elif theirs.weights != ours.weights:
        yield "weights", "weights or buffers differ after the first steps"


def _near(theirs: Recording, ours: Recording, spread: Spread, *, rounds: bool) -> Iterator[tuple[str, str]]:
    """Yield what differs by more than the user's own ``spread``, and by more than rounding if ``rounds``."""
    for number, (one, other) in enumerate(zip(theirs.norms, ours.norms, strict=False)):
        rounding = (GRADIENTS[number] if number < len(GRADIENTS) else math.inf) if rounds else KINK
        off = _distance(one, other)
        if off > max(rounding, spread.norm(number)):
            yield "gradients", f"gradients of step {number + 1} differ by {off:.2g} of their size"
            break
    for number, (loss, mine) in enumerate(zip(theirs.losses, ours.losses, strict=False)):
        rounding = (LOSS if number <= len(GRADIENTS) else LATER_LOSS) if rounds else FLOOR
        if abs(loss - mine) > max(rounding * max(abs(loss), 1e-3), spread.loss(number)):
            yield "losses", f"the loss of step {number + 1} is {mine:.6g}, not {loss:.6g}"
            break
    off = _movement(theirs, ours)
    if off > max(WEIGHTS if rounds else FLOOR, FACTOR * spread.weights):
        yield "weights", f"weights differ by {off:.2g} of what they have moved"


def _distance(theirs: list[float], ours: list[float]) -> float:
    """Return how far norms of gradients are apart, relative to the largest of them that matter."""
    if len(theirs) != len(ours):
        return float("inf")
    one, other = numpy.asarray(theirs), numpy.asarray(ours)
    if not len(one) or not numpy.isfinite(one).all():
        return 0.0
    floor = 1e-2 * float(one.max(initial=0.0)) + 1e-12
    return float((numpy.abs(one - other) / numpy.maximum(one, floor)).max())


def _movement(theirs: Recording, ours: Recording) -> float:
    moved = sum(float(((after - before) ** 2).sum()) for before, after in theirs.values)
    pairs = zip(theirs.values, ours.values, strict=False)
    apart = sum(float(((mine - other) ** 2).sum()) for (_before, other), (_start, mine) in pairs)
    return float((apart / moved) ** 0.5) if moved > 0 else 0.0
