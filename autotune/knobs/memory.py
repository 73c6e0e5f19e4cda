"""Memory as a constraint: what settings are expected to need, by what the baseline's trial held."""

from __future__ import annotations

from autotune.knobs.knob import Context
from autotune.knobs.settings import Settings

SHM_HEADROOM = 1.5
PROCESS_BYTES = 400 * 2**20
"""Resident memory of a process that imported torch, if that was not measured."""
WORKER_BYTES = 100 * 2**20
"""What one more loader worker takes, in its own process and in the one that trains."""
TUNER_BYTES = 300 * 2**20
"""What the tuner and its fork server hold of the machine's memory, beside a trial."""
USABLE = 0.85
"""Share of a limit that settings may be expected to need."""


def why_not(settings: Settings, context: Context) -> str | None:
    """Return why ``settings`` do not fit into memory; None if they do, or need no more than the baseline."""
    queued, free = _queued_bytes(settings, context), context.inventory.memory.shm_free
    wanted = int(queued * SHM_HEADROOM)
    if free is not None and wanted > free:
        return f"loader workers need {size(wanted)} of /dev/shm, {size(free)} are free (docker: --shm-size)"
    own, needed = host_bytes(context.baseline, context), host_bytes(settings, context)
    left, most, most_gpu = context.inventory.memory.limit - TUNER_BYTES, context.max_memory, context.max_gpu_memory
    if needed > max(own, USABLE * left):
        return f"needs about {size(needed)} of memory; trials have {size(left)}"
    if most is not None and needed > max(own, most):
        return f"needs about {size(needed)} of memory; --max-memory is {size(most)}"
    on_gpu = context.memory.gpu * settings.batch_size // context.baseline.batch_size
    if most_gpu is not None and on_gpu > max(context.memory.gpu, most_gpu):
        return f"needs up to {size(on_gpu)} of a GPU; --max-gpu-memory is {size(most_gpu)}"
    return None


def host_bytes(settings: Settings, context: Context) -> int:
    """Return about how many bytes of host memory ``settings`` need.

    Each process holds what does not depend on its batch, activations in proportion to it, loader workers with their
    copies of the data set's objects, and the batches that these have read ahead.
    """
    known, own = context.memory, context.baseline
    fixed = known.fixed or PROCESS_BYTES + 16 * context.task.parameters
    activations = max(0, known.peak - fixed) * settings.batch_size // own.batch_size
    workers = max(0, known.workers + (settings.num_workers - own.num_workers) * WORKER_BYTES)
    workers += settings.num_workers * context.task.copied_bytes
    each = fixed + activations + workers + settings.batch_size * context.task.sample_bytes
    total: int = settings.processes * each + _queued_bytes(settings, context)
    return total


def _queued_bytes(settings: Settings, context: Context) -> int:
    """Return the size of the batches that loader workers hold in shared memory."""
    held = settings.processes * settings.num_workers * ((settings.prefetch_factor or 0) + 1)
    return held * settings.batch_size * context.task.sample_bytes


def size(count: int) -> str:
    """Return ``64 KiB``, ``512 MiB``, ``23.0 GiB``."""
    if count < 2**20:
        return f"{count / 2**10:.0f} KiB"
    return f"{count / 2**20:.0f} MiB" if count < 2**30 else f"{count / 2**30:.1f} GiB"
