"""A loader without training: seconds of a batch, what an epoch's start takes, and what the loader does meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from autotune.trial import process_tree
from autotune.trial.child.measured_loop import MeasuredLoop

SECONDS = 0.5
MOST_BATCHES = 2000
STARTS = 3
START_SECONDS = 0.5


def loader_alone(loop: MeasuredLoop) -> dict[str, Any]:
    """Seconds of a batch and of an epoch's start; how busy its processes are, and bytes from storage.

    Every rank reads the same number of batches.
    """
    starts = [_start_seconds(loop) for _ in range(_starts(loop))]
    stream, queue = _batches(loop), _queue(loop)
    first = _seconds(lambda: next(stream), queue + 1) / (queue + 1)
    batches = loop.agree(max(2, min(MOST_BATCHES, int(SECONDS / max(first, 1e-6)))))
    workers = process_tree.descendants(os.getpid())
    before = _used((os.getpid(),)), _used(workers)
    seconds = _seconds(lambda: next(stream), batches)
    main, theirs = _used((os.getpid(),)).since(before[0]), _used(workers).since(before[1])
    return {
        "batch_seconds": seconds / batches,
        "epoch_seconds": min(starts),
        "main_busy": main.busy(seconds),
        "worker_busy": theirs.busy(seconds * len(workers)),
        "storage_bytes": (main.read + theirs.read) / batches,
    }


@dataclass(frozen=True)
class _Used:
    """What some processes used: seconds on a CPU, seconds of waiting for one that others had, bytes from storage."""

    running: float
    waiting: float
    read: float

    def since(self, before: _Used) -> _Used:
        """The difference."""
        return _Used(self.running - before.running, self.waiting - before.waiting, self.read - before.read)

    def busy(self, seconds: float) -> float:
        """Share of ``seconds`` that they ran. What others made them wait is no part of it."""
        own = seconds - self.waiting
        return min(1.0, max(0.0, self.running / own)) if own > 0 else 0.0


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


def _used(pids: Iterable[int]) -> _Used:
    """Of the main threads of ``pids``."""
    known = list(pids)
    times = [_times(pid) for pid in known]
    return _Used(sum(run for run, _ in times), sum(wait for _, wait in times), sum(map(_read_bytes, known)))


def _times(pid: int) -> tuple[float, float]:
    """Seconds on a CPU, and of waiting for one; 0 where the kernel does not tell."""
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            running, waiting, _ = file.read().split()
    except (OSError, ValueError):
        return 0.0, 0.0
    return int(running) / 1e9, int(waiting) / 1e9


def _read_bytes(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/io") as file:
            return float(next(line for line in file if line.startswith("read_bytes")).split()[1])
    except (OSError, StopIteration):
        return 0.0
