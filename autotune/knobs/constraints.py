"""Rules over several knobs: settings that this machine or task cannot run, and the same work with other processes."""

from __future__ import annotations

from autotune.knobs import memory
from autotune.knobs.backend import BACKENDS, why_not_usable
from autotune.knobs.knob import Context
from autotune.knobs.settings import Settings
from autotune.probes.facts import Inventory

THREAD_SLACK = 2.0
"""Busy threads plus loader workers of all processes may reach this many times the CPU budget."""
MIN_BATCH_NORM_BATCH = 8
"""BatchNorm statistics of fewer samples are another training (pytorch/pytorch#2584)."""


def why_not(settings: Settings, context: Context) -> str | None:
    """Return why ``settings`` are not feasible; None if they are."""
    found = crowding(settings, context.inventory, context.baseline) or memory.why_not(settings, context)
    return found or _numerics(settings, context)


def with_processes(settings: Settings, processes: int, inventory: Inventory, here: int | None = None) -> Settings:
    """Spread the same global batch over ``processes`` processes, threads and workers over the ``here`` of them that run
    on this machine (all, if None).

    If ``processes`` does not divide the global batch, the share is rounded up; the loader then shares the global batch
    out exactly.
    """
    total, here = settings.processes, here or processes
    workers = settings.num_workers
    if total > 1 and not inventory.gpus:
        workers = workers * total // here
    return settings.but(
        processes=processes,
        threads=max(1, settings.threads * total // here),
        num_workers=max(1, workers) if settings.num_workers else 0,
        batch_size=-(-settings.global_batch // processes),
        backend=settings.backend if processes > 1 else None,
    )


def within(settings: Settings, share: int) -> Settings:
    """Fit threads and workers of one process to its ``share`` of the CPU budget."""
    return settings.but(threads=min(settings.threads, share), num_workers=min(settings.num_workers, share))


def most_processes(settings: Settings, inventory: Inventory) -> int:
    """Count how many processes of ``settings`` this machine can start."""
    limit = inventory.budget.threads
    if settings.backend == "nccl":
        limit = min(limit, len(inventory.gpus))
    if settings.processes > 1 and settings.backend is not None and inventory.software.backends:
        limit = 1 if why_not_usable(inventory, settings.backend) else limit
    return max(1, limit)


def crowding(settings: Settings, inventory: Inventory, own: Settings | None = None) -> str | None:
    """Return why processes, threads and workers of ``settings`` are too many for this machine; None if they are not.

    The user's ``own`` settings may have more threads than it: others may have as many.
    """
    budget, processes = inventory.budget.threads, settings.processes
    most = max(budget, own.processes * own.threads) if own is not None else budget
    if processes * settings.threads > most and settings.threads > 1:
        return f"{processes} x {settings.threads} threads exceed the CPU budget of {budget}"
    cores = inventory.budget.cores
    if settings.backend and BACKENDS[settings.backend].waits_busily and processes * settings.threads > cores:
        return f"{settings.backend} waits busily: {processes} x {settings.threads} threads exceed the {cores} cores"
    if processes * settings.num_workers > budget:
        return f"{processes} x {settings.num_workers} loader workers exceed the CPU budget of {budget}"
    if processes * (settings.threads + settings.num_workers) > most + budget * (THREAD_SLACK - 1):
        return f"threads and loader workers exceed {THREAD_SLACK:g} times the CPU budget of {budget}"
    limit = inventory.limits.processes
    tasks = processes * (2 * settings.threads + settings.interop_threads + 3 * settings.num_workers + 2)
    if limit is not None and tasks > 0.8 * limit:
        return f"about {tasks} threads exceed 80 % of the limit of {limit} ({inventory.limits.processes_source})"
    return None


def _numerics(settings: Settings, context: Context) -> str | None:
    least = min(MIN_BATCH_NORM_BATCH, context.baseline.batch_size)
    if context.task.has_batch_norm and settings.batch_size < least:
        return f"BatchNorm would normalise over {settings.batch_size} samples, fewer than {least}"
    if context.task.script and settings.processes > 1:
        baseline = context.baseline
        if settings.processes != baseline.processes and context.task.why_not_several is not None:
            return context.task.why_not_several
        own = settings.global_batch == baseline.global_batch
        return None if own else "several processes of a script train at its own global batch only"
    samples = context.task.samples
    if samples is not None and settings.global_batch > samples:
        return f"global batch {settings.global_batch} is larger than the dataset of {samples}"
    return None
