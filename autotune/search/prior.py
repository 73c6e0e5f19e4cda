"""Expects rates of settings before they are tried: a pipeline model of the step, and what a trial costs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import log, log2

from autotune.knobs.knob import Context
from autotune.knobs.settings import KNOBS, Settings
from autotune.knobs.space import Space
from autotune.search.history import Trial, first_measured

CONTENTION = 0.3
COHERENCE = 0.002
"""Universal scalability law (Gunther 2007): C(n) = n / (1 + a (n - 1) + b n (n - 1)), here over threads."""
MOST_FIXED = 0.4
"""Share of the baseline's computing that overhead and update may be assumed to take each: only trials show more."""
EXCHANGE_SECONDS = {"gloo": (6e-4, 1e-9), "mpi": (1e-5, 5e-10), "ccl": (2e-5, 5e-10), "nccl": (5e-5, 1e-11)}
"""Allreduce between two processes by gloo: seconds whatever the size, and per byte."""
MOST_WAITING = 0.95
"""Largest share of a step that may count as waiting for data."""
BATCH_GAIN = 0.02
"""Log rate won with each doubling of a process's batch beside overhead: larger kernels."""


class Prior:
    """Expected log rate of any settings, up to a constant.

    Args:
        space: machine and task.
        history: trials; the first measured one gives the seconds of a step, and its loader's share of them.
    """

    def __init__(self, space: Space, history: Sequence[Trial]) -> None:
        self._context = context = space.context
        self._device = context.device
        self._cores = context.inventory.budget.threads
        self._bytes = 4 * context.task.parameters
        known, first = first_measured(history)
        seconds, waiting = first.step_seconds, min(MOST_WAITING, first.load_share)
        computing = max(1e-6, (1 - waiting) * seconds - self._gradient_sync(known))
        self._update = min(MOST_FIXED * computing, context.task.parameters * self._device.update_seconds)
        passes = computing - self._update
        self._overhead = min(MOST_FIXED * passes, self._device.overhead_seconds)
        self._sample = (passes - self._overhead) * self._speed(known) / known.batch_size
        loaders = known.processes * max(1, known.num_workers)
        starved = waiting if known.num_workers == 0 else min(1.0, 2 * waiting)
        self._load = starved * seconds * loaders / known.global_batch

    def __call__(self, settings: Settings) -> float:
        """Return the expected log rate, up to a constant."""
        return (
            log(settings.global_batch * self._context.worth(settings))
            - log(self._step(settings))
            + sum(knob.gain(settings, self._context) for knob in KNOBS)
            + BATCH_GAIN * log2(settings.batch_size)
        )

    def _step(self, settings: Settings) -> float:
        """Return the seconds of an optimizer step: loading beside computing on the same cores, then gradient sync."""
        compute = self._overhead + self._sample * settings.batch_size / self._speed(settings) + self._update
        load = self._load * settings.global_batch
        if settings.num_workers == 0:
            return compute + load / settings.processes + self._gradient_sync(settings)
        supply = load / (settings.processes * settings.num_workers)
        computing = settings.processes * (settings.threads if self._device.on_host else 1)
        busy = (load + compute * computing) / self._cores
        return float((supply**4 + compute**4 + busy**4) ** 0.25) + self._gradient_sync(settings)

    def _speed(self, settings: Settings) -> float:
        """Return the speed of one process, relative to one thread or one GPU alone."""
        count = settings.threads if self._device.on_host else 1
        threads = count / (1 + CONTENTION * (count - 1) + COHERENCE * count * (count - 1))
        return float(threads * settings.processes ** (-self._device.process_loss / log(2)))

    def _gradient_sync(self, settings: Settings) -> float:
        """Return the seconds of one gradient sync; more processes take more hops."""
        if settings.processes == 1:
            return 0.0
        latency, per_byte = EXCHANGE_SECONDS.get(settings.backend or "gloo", EXCHANGE_SECONDS["gloo"])
        return (latency + per_byte * self._bytes) * log2(settings.processes)


def trial_seconds(settings: Settings, rate: float, tried: Collection[Settings], context: Context) -> float:
    """Return the rough cost of a trial at ``rate`` items/s: start, warm-up (primed queue included), measuring.

    Only ratios matter: the search divides gains by it. ``tried`` are the settings of past trials: a value that none of
    them had may need a process of its own first, that imports torch and the task.
    """
    step = settings.global_batch / max(rate, 1e-9)
    primed = settings.num_workers * ((settings.prefetch_factor or 0) + 1)
    start = 0.5 + 0.5 * (settings.processes > 1)
    if settings.start_part != context.baseline.start_part:
        start += context.start_seconds
    for knob in KNOBS:
        value = getattr(settings, knob.name)
        start += knob.start_seconds.get(value, 0.0)
        if value in knob.first_seconds and all(getattr(other, knob.name) != value for other in tried):
            start += knob.first_seconds[value]
    return start + min(3.0, max(0.3, max(3.0, primed) * step)) + max(0.6, 2 * step)
