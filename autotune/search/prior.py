"""What to expect of settings before any trial: analytic effects on the log rate, and what a trial costs."""

from __future__ import annotations

from math import log, log2

from autotune.core.settings import Settings
from autotune.core.space import Space

CONTENTION = 0.40
COHERENCE = 0.002
"""Universal scalability law (Gunther, 2007): C(n) = n / (1 + a (n - 1) + b n (n - 1))."""
PROCESS_LOSS = 0.25
"""Log rate lost to gradient exchange with each doubling of processes on one host."""
GPU_PROCESS_GAIN = 0.60
"""Log rate won with each doubling of GPUs; ideal would be log 2 = 0.69."""
ACCUMULATION_LOSS = 0.06
"""Log rate lost with each doubling of accumulation at equal global batch: smaller, more numerous kernels."""
BATCH_GAIN = 0.08
"""Log rate won with each doubling of the global batch."""
WORKER_GAIN = 0.08
FUSED_GAIN = {"default": 0.0, "foreach": 0.01, "fused": 0.05}
COMPILE_GAIN = {"off": 0.0, "default": 0.08, "reduce-overhead": 0.10, "max-autotune": 0.10}
PRECISION_GAIN = {
    "cpu": {"fp32": 0.0, "tf32": 0.0, "bf16": 0.10, "fp16": -0.5},
    "cuda": {"fp32": 0.0, "tf32": 0.20, "bf16": 0.35, "fp16": 0.33},
}


def scalability(workers: float) -> float:
    """Relative capacity of ``workers`` units by the universal scalability law; 1.0 for one."""
    return workers / (1 + CONTENTION * (workers - 1) + COHERENCE * workers * (workers - 1))


def expectation(space: Space, settings: Settings) -> float:
    """Expected log rate of ``settings``, up to a constant of the task."""
    cuda = space.context.cuda
    exchange = log2(settings.processes)
    if cuda:
        shape = GPU_PROCESS_GAIN * exchange
    else:
        shape = log(scalability(settings.threads)) + log(settings.processes) - PROCESS_LOSS * exchange
        shape -= _crowding(space, settings)
    memory = 0.03 * (settings.allocator != "default") + 0.03 * settings.pin_memory + 0.04 * settings.cudnn_benchmark
    layout = (0.02 if cuda and settings.precision in ("fp32", "tf32") else 0.10) * settings.channels_last
    return (
        shape
        + _loading(settings)
        + memory
        + layout
        + FUSED_GAIN[settings.optimizer_impl]
        + COMPILE_GAIN[settings.compile]
        + PRECISION_GAIN[space.context.task.device][settings.precision]
        + BATCH_GAIN * log2(settings.global_batch)
        - ACCUMULATION_LOSS * log2(settings.accumulation)
    )


def _loading(settings: Settings) -> float:
    if settings.num_workers == 0:
        return 0.0
    return WORKER_GAIN + 0.01 * log2(settings.num_workers) + 0.02 * settings.persistent_workers


def _crowding(space: Space, settings: Settings) -> float:
    """Log rate lost where threads and loader workers together exceed the CPU budget."""
    busy = settings.processes * (settings.threads + 0.5 * settings.num_workers)
    return 0.1 * max(0.0, log2(busy / space.context.inventory.budget.threads))


def trial_seconds(settings: Settings, rate: float) -> float:
    """Rough cost of a trial at ``rate`` items/s: start, warm-up (primed queue included), measuring; compile on top.

    Only ratios matter: the search divides gains by it.
    """
    step = settings.global_batch / max(rate, 1e-9)
    primed = settings.num_workers * ((settings.prefetch_factor or 0) + 1) / settings.accumulation
    start = 0.5 + 0.5 * (settings.processes > 1)
    compiling = 0.0 if settings.compile == "off" else 20.0
    return start + compiling + min(3.0, max(0.3, max(3.0, primed) * step)) + max(0.6, 2 * step)
