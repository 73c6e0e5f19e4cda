"""Core-to-core latency just now: what one core pays to read what another has written.

A virtual machine's processors move on their host. Where they leave a common cache, steps whose threads share data take
half as long again, for minutes and with nothing in ``/proc`` to show it; work that each core does alone runs as before.
"""

from __future__ import annotations

import statistics
import time

import torch

from autotune.knobs.settings import Settings

CHUNK = 32768
"""Elements that torch gives a thread at least (its grain size): 128 KiB, which fits a core's own cache."""
TURNS, IDLE_TURNS = 9, 2


class CoreLatencyTimer:
    """Times a copy in which every thread reads what another has written.

    Args:
        device: nothing is measured on a GPU, whose training waits for other things.
        settings: nothing is measured with one thread, which shares with nobody, nor with threads that sleep while
            they wait: to wake them takes longer than the copy.
    """

    def __init__(self, device: str, settings: Settings) -> None:
        shared = device == "cpu" and settings.threads > 1 and settings.omp_wait_policy != "passive"
        self._chunks = torch.zeros(settings.threads, CHUNK) if shared else None

    def seconds(self) -> float:
        """Seconds of one such copy (median of `TURNS`); 0 where nothing is measured."""
        if self._chunks is None:
            return 0.0
        taken = []
        with torch.no_grad():
            for _ in range(IDLE_TURNS + TURNS):
                started = time.perf_counter()
                self._chunks.copy_(self._chunks.flip(0))
                taken.append(time.perf_counter() - started)
        return statistics.median(taken[IDLE_TURNS:])
