"""Knobs of the loader."""

from __future__ import annotations

from typing import Any

from autotune.core.knobs.knob import (
    LESS,
    MORE,
    Choices,
    Chosen,
    Context,
    Count,
    Effect,
    Flag,
    Knob,
    Word,
    powers_of_two,
)


def has_workers(settings: Chosen) -> bool:
    """`Knob.applies` of what loader workers do."""
    return bool(settings.num_workers > 0)


def _num_workers(context: Context) -> Choices:
    budget, task = context.inventory.budget.threads, context.task
    most = min(budget, 32)
    if task.iterable:
        own = context.baseline.num_workers
        return Choices((own,), ((own + 1, "more workers would make other batches of an iterable dataset"),))
    counts = {0, 1, *powers_of_two(most), *(most * k // 4 for k in (1, 2, 3, 4))}
    if most <= 4:
        counts |= set(range(most + 1))
    return Choices(tuple(sorted(count for count in counts if count <= most)))


NUM_WORKERS = Knob(
    name="num_workers",
    what="loader workers of each process",
    words="{} loader worker{s}",
    offered="0 up to the CPU budget, where `/dev/shm` holds their batches",
    kind=Count(0, 1024),
    neutral=0,
    applied="loader",
    choices=_num_workers,
    why={MORE: "batches are prepared during training", LESS: "workers took time from training"},
    effect=Effect(0.30, 1.5),
)


def _first_workers(before: Any, after: Any, _settings: Chosen) -> str | None:
    return "PyTorch's default with workers" if before is None and after == PREFETCH_FACTOR.usual else None


PREFETCH_FACTOR = Knob(
    name="prefetch_factor",
    what="batches each worker prepares ahead",
    words="{} batch{es} ahead",
    offered="1, 2, 4, 8",
    kind=Count(1, 1024),
    neutral=None,
    applied="loader",
    choices=lambda _context: Choices((1, 2, 4, 8)),
    applies=has_workers,
    usual=2,
    follows=True,
    why={
        MORE: "batches in hand smooth over slow ones",
        LESS: "less memory for waiting batches",
        None: "no workers, nothing to prefetch",
    },
    explained=_first_workers,
    effect=Effect(0.03, 2.0),
    applier="loader:PrefetchFactor",
)


def _persistent_workers(context: Context) -> Choices:
    if context.baseline.persistent_workers:
        return Choices((True,), ((False, "your DataLoader keeps its workers"),))
    stale = "workers that outlive an epoch would not see a dataset that changes between epochs"
    return Choices((False,), ((True, f"{stale}; set it in your DataLoader and in CURRENT"),))


PERSISTENT_WORKERS = Knob(
    name="persistent_workers",
    what="keep loader workers between epochs",
    offered="yours: kept workers do not see a dataset that changes between epochs",
    kind=Flag(),
    neutral=False,
    applied="loader",
    choices=_persistent_workers,
    applies=has_workers,
    follows=True,
    why={True: "no new workers each epoch", False: "no workers, none to keep"},
)


def _pin_memory(context: Context) -> Choices:
    if context.cuda:
        return Choices((False, True))
    return Choices((False,), ((True, "pinned memory only serves copies to an accelerator"),))


PIN_MEMORY = Knob(
    name="pin_memory",
    what="page-locked host batches",
    offered="off, on, with a GPU",
    kind=Flag(),
    neutral=False,
    applied="loader",
    choices=_pin_memory,
    devices=("cuda",),
    why={True: "copies to the GPU overlap computation", False: "page-locking cost more than it saved"},
    effect=Effect(0.06),
    gain=lambda settings, _context: 0.03 * settings.pin_memory,
    applier="loader:PinMemory",
)


START_METHODS = ("default", "fork", "spawn", "forkserver")


def _worker_start(context: Context) -> Choices:
    fresh = "starts each worker as a new Python, which imports the script again: never quicker than a fork"
    left_out = tuple((method, fresh) for method in START_METHODS[2:])
    usual = context.inventory.software.start_method
    if context.cuda:
        return Choices(("default",), (("fork", "a process that uses CUDA should not be forked"), *left_out))
    if usual == "fork":
        return Choices(("default",), (("fork", "it is the default here"), *left_out))
    if context.inventory.software.platform != "linux":
        return Choices(("default",), (("fork", f"not safe on {context.inventory.software.platform}"), *left_out))
    return Choices(("default", "fork"), left_out)


WORKER_START = Knob(
    name="worker_start",
    what="how loader workers are started",
    offered="default; fork on Linux where Python's default is another (3.14), CPU training only",
    kind=Word(START_METHODS),
    neutral="default",
    applied="loader",
    choices=_worker_start,
    applies=has_workers,
    why={
        "fork": "workers start without new imports",
        "spawn": "workers start from a fresh Python",
        "forkserver": "workers start from a clean process",
        "default": "Python's own choice is fastest here",
    },
    effect=Effect(0.05),
    applier="loader:WorkerStart",
    added_later=True,
)
