"""What to expect of settings before they are tried: a pipeline model of the step, and what a trial costs."""

from __future__ import annotations

from collections.abc import Sequence
from math import log, log2

from autotune.core.outcome import Completed
from autotune.core.settings import Settings
from autotune.core.space import Space
from autotune.search.protocol import Observation

CONTENTION = 0.3
COHERENCE = 0.002
"""Universal scalability law (Gunther 2007): C(n) = n / (1 + a (n - 1) + b n (n - 1)), here over threads."""
PROCESS_EXPONENT = {"cpu": 0.7, "cuda": 0.87}
"""``processes ** exponent`` is the capacity of several processes; the rest goes into gradient exchange."""
EXCHANGE_GAIN = {"mpi": 0.15}
"""Log rate won by another backend than gloo or nccl: through shared memory instead of sockets (decision 010)."""
ASSUMED_LOAD_SHARE = 0.2
"""Share of the step spent waiting for data, where no trial has told it yet."""
ACCUMULATION_LOSS = 0.07
"""Log rate lost with each doubling of accumulation at equal global batch: smaller, more numerous kernels."""
BATCH_GAIN = 0.08
"""Log rate won with each doubling of the global batch."""
OPTIMIZER_GAIN = {"default": 0.0, "foreach": 0.01, "fused": 0.05}
COMPILE_GAIN = {"off": 0.0, "default": 0.08, "reduce-overhead": 0.10, "max-autotune": 0.10}
MATRIX_SHARE = 0.5
PRECISION_GAIN = {
    "cpu": {"fp32": 0.0, "tf32": 0.0, "bf16": 0.10, "fp16": -0.5},
    "cuda": {"fp32": 0.0, "tf32": 0.20, "bf16": 0.35, "fp16": 0.33},
}


class Prior:
    """Expected log rate of any settings, up to a constant; what the first trial says of its loader is used."""

    def __init__(self, space: Space, history: Sequence[Observation] = ()) -> None:
        """
        Args:
            space: machine and task.
            history: observations; the first measured one tells how much of the step the loader takes.
        """
        self._device = space.context.task.device
        self._gflops = space.context.gflops
        self._cores = space.context.inventory.budget.threads
        self._compute, self._load = self._parts(history)

    def __call__(self, settings: Settings) -> float:
        """Expected log rate, up to a constant."""
        return (
            -log(self._step(settings))
            + _memory_gain(settings)
            + self._layout_gain(settings)
            + EXCHANGE_GAIN.get(settings.backend or "", 0.0)
            + OPTIMIZER_GAIN[settings.optimizer_impl]
            + COMPILE_GAIN[settings.compile]
            + self._precision_gain(settings.precision)
            + BATCH_GAIN * log2(settings.global_batch)
            - ACCUMULATION_LOSS * log2(settings.accumulation)
        )

    def _precision_gain(self, precision: str) -> float:
        """Half of the measured gain of matrix products (the rest of a step gains nothing), else a usual value."""
        if precision in self._gflops and self._gflops.get("fp32", 0.0) > 0:
            return MATRIX_SHARE * log(self._gflops[precision] / self._gflops["fp32"])
        return PRECISION_GAIN[self._device][precision]

    def _parts(self, history: Sequence[Observation]) -> tuple[float, float]:
        """Seconds that one global batch costs in compute (on capacity 1) and in loading (on one worker), relative."""
        for observation in history:
            outcome, settings = observation.outcome, observation.settings
            if isinstance(outcome, Completed) and outcome.measurement is not None:
                waiting = outcome.measurement.load_share
                if 0 < waiting < 1:
                    loaders = settings.processes * max(1, settings.num_workers)
                    starved = waiting if settings.num_workers == 0 else min(1.0, 2 * waiting)
                    return (1 - waiting) * self._capacity(settings), starved * loaders
        return 1 - ASSUMED_LOAD_SHARE, ASSUMED_LOAD_SHARE

    def _step(self, settings: Settings) -> float:
        """Relative seconds per global batch: loading beside computing, both on the same cores."""
        compute = self._compute / self._capacity(settings)
        if settings.num_workers == 0:
            return compute + self._load / settings.processes
        supply = self._load / (settings.processes * settings.num_workers)
        computing = settings.processes * (1 if self._device == "cuda" else settings.threads)
        busy = (self._load + compute * computing) / self._cores
        return float((supply**4 + compute**4 + busy**4) ** 0.25)

    def _capacity(self, settings: Settings) -> float:
        processes = float(settings.processes ** PROCESS_EXPONENT[self._device])
        return processes if self._device == "cuda" else processes * scalability(settings.threads)

    def _layout_gain(self, settings: Settings) -> float:
        plain = self._device == "cuda" and settings.precision in ("fp32", "tf32")
        return (0.02 if plain else 0.10) * settings.channels_last


def scalability(threads: int) -> float:
    """Relative capacity of ``threads`` threads by the universal scalability law; 1.0 for one."""
    return threads / (1 + CONTENTION * (threads - 1) + COHERENCE * threads * (threads - 1))


def _memory_gain(settings: Settings) -> float:
    return (
        0.03 * (settings.allocator != "default")
        + 0.03 * settings.pin_memory
        + 0.04 * settings.cudnn_benchmark
        + 0.02 * settings.persistent_workers
    )


def trial_seconds(settings: Settings, rate: float) -> float:
    """Rough cost of a trial at ``rate`` items/s: start, warm-up (primed queue included), measuring; compile on top.

    Only ratios matter: the search divides gains by it.
    """
    step = settings.global_batch / max(rate, 1e-9)
    primed = settings.num_workers * ((settings.prefetch_factor or 0) + 1) / settings.accumulation
    start = 0.5 + 0.5 * (settings.processes > 1)
    compiling = 0.0 if settings.compile == "off" else 20.0
    return start + compiling + min(3.0, max(0.3, max(3.0, primed) * step)) + max(0.6, 2 * step)
