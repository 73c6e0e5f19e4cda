"""A loader without training: seconds of a batch, what an epoch's start takes, and what the loader does meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from autotune.trial import process_tree
from autotune.trial.child.measured_loop import MeasuredLoop

SECONDS = 0.5
MOST_BATCHES = 2000
STARTS = 3
START_SECONDS = 0.5


def loader_alone(loop: MeasuredLoop) -> dict[str, Any]:
    """Seconds of a batch and of an epoch's start; busy seconds and bytes from storage for a batch.

    Every rank reads the same number of batches.
    """
    starts = [_start_seconds(loop) for _ in range(_starts(loop))]
    stream, queue = _batches(loop), _queue(loop)
    first = _seconds(lambda: next(stream), queue + 1) / (queue + 1)
    batches = loop.agree(max(2, min(MOST_BATCHES, int(SECONDS / max(first, 1e-6)))))
    before = _used()
    seconds = _seconds(lambda: next(stream), batches)
    used = [(now - then) / batches for then, now in zip(before, _used(), strict=True)]
    return {
        "batch_seconds": seconds / batches,
        "epoch_seconds": min(starts),
        "main_busy": used[0],
        "worker_busy": used[1],
        "storage_bytes": used[2],
    }


def _starts(loop: MeasuredLoop) -> int:
    """How many epochs are begun: one where that takes long."""
    return loop.agree(STARTS if _start_seconds(loop) < START_SECONDS / STARTS else 1)


def _start_seconds(loop: MeasuredLoop) -> float:
    """From the begin of an epoch to its first batch."""
    loop.goes_on()
    return _seconds(lambda: next(iter(loop.loader)), 1)


def _queue(loop: MeasuredLoop) -> int:
    """Batches that workers prepare ahead: as many are read before the clock starts."""
    return loop.spec.settings.num_workers * ((loop.spec.settings.prefetch_factor or 0) + 1)


def _batches(loop: MeasuredLoop) -> Iterator[Any]:
    while True:
        for batch in loop.loader:
            loop.goes_on()
            yield batch


def _seconds(work: Callable[[], Any], times: int) -> float:
    started = time.perf_counter()
    for _ in range(times):
        work()
    return time.perf_counter() - started


def _used() -> tuple[float, float, float]:
    """Seconds that this process and those below it ran or waited for a CPU, and bytes that all read from storage."""
    below = process_tree.descendants(os.getpid())
    read = sum(map(_read_bytes, (os.getpid(), *below)))
    return _busy_seconds(os.getpid()), sum(map(_busy_seconds, below)), read


def _busy_seconds(pid: int) -> float:
    """On a CPU, or waiting for one that others use: of the main thread. 0 where the kernel does not tell."""
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            running, waiting, _ = file.read().split()
    except (OSError, ValueError):
        return 0.0
    return (int(running) + int(waiting)) / 1e9


def _read_bytes(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/io") as file:
            return float(next(line for line in file if line.startswith("read_bytes")).split()[1])
    except (OSError, StopIteration):
        return 0.0
