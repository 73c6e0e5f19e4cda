"""Memory as a constraint: what settings are expected to need, by what the baseline's trial held."""

from __future__ import annotations

from autotune.knobs.knob import Context
from autotune.knobs.settings import Settings

SHM_HEADROOM = 1.5
PROCESS_BYTES = 400 * 2**20
"""Resident memory of a process that imported torch, if that was not measured."""
WORKER_BYTES = 60 * 2**20
"""What a loader worker holds for itself, if the baseline has none."""
USABLE = 0.85
"""Share of a limit that settings may be expected to need."""


def why_not(settings: Settings, context: Context) -> str | None:
    """Return why ``settings`` do not fit into memory; None if they do, or need no more than the baseline."""
    queued, free = _queued_bytes(settings, context), context.inventory.memory.shm_free
    wanted = int(queued * SHM_HEADROOM)
    if free is not None and wanted > free:
        return f"loader workers need {size(wanted)} of /dev/shm, {size(free)} are free (docker: --shm-size)"
    limit, own = context.inventory.memory.limit, host_bytes(context.baseline, context)
    limit = min(limit, context.max_memory or limit)
    needed = host_bytes(settings, context)
    if needed > max(own, USABLE * limit):
        return f"needs about {size(needed)} of memory, the limit is {size(limit)}"
    if context.max_gpu_memory is not None and context.memory.gpu:
        needed = context.memory.gpu * settings.batch_size // context.baseline.batch_size
        if needed > max(context.memory.gpu, context.max_gpu_memory):
            return f"needs up to {size(needed)} of a GPU's memory, the limit is {size(context.max_gpu_memory)}"
    return None


def host_bytes(settings: Settings, context: Context) -> int:
    """Return about how many bytes of host memory ``settings`` need.

    Each process holds what does not depend on its batch, and activations in proportion to it; each loader worker what
    one of the baseline's holds, and the batches that it has read ahead.
    """
    known, own = context.memory, context.baseline
    fixed = known.fixed or PROCESS_BYTES + 16 * context.task.parameters
    activations = max(0, known.peak - fixed) * settings.batch_size // own.batch_size
    worker = known.workers // own.num_workers if known.workers and own.num_workers else WORKER_BYTES
    each = fixed + activations + settings.num_workers * worker + settings.batch_size * context.task.sample_bytes
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
