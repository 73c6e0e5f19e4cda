"""Who else uses the processors while a run measures."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from autotune.core.events import Event, Observer
from autotune.core.load import MENTIONED, Load, Neighbour
from autotune.probes.processes import Process, below, processes

SAMPLE_SECONDS = 5.0
"""Between two looks at all processes, at least..."""
SAMPLE_SHARE = 0.01
"""...and looks take no more than this share of the time: machines with many cores have thousands of processes."""
Key = tuple[int, float]


class Neighbours:
    """Counts the CPU time of other processes from its construction on. What this process starts is no neighbour.

    Args:
        read: gives all processes.
        clock: seconds.
        own: the process that tunes.
    """

    def __init__(
        self,
        read: Callable[[], Sequence[Process]] = processes,
        clock: Callable[[], float] = time.monotonic,
        own: int | None = None,
    ) -> None:
        self._read, self._clock, self._own = read, clock, own or os.getpid()
        self._started = self._sampled = clock()
        self._before = {_key(each): each.seconds for each in read()}
        self._cost = clock() - self._started
        """Seconds of one look."""
        self._latest: dict[Key, Process] = {}
        self._ours: set[Key] = set()

    def observing(self, observe: Observer) -> Observer:
        """``observe``, and a look at the processes at events: nothing is timed then."""

        def both(event: Event) -> None:
            if self._clock() - self._sampled >= max(SAMPLE_SECONDS, self._cost / SAMPLE_SHARE):
                self._sample()
            observe(event)

        return both

    def load(self, threads: int) -> Load:
        """Who took more than a little of ``threads`` CPUs so far."""
        self._sample()
        seconds = max(self._clock() - self._started, 1e-9)
        found = []
        for key, each in self._latest.items():
            cpus = (each.seconds - self._before.get(key, 0.0)) / seconds
            if key not in self._ours and cpus >= MENTIONED:
                found.append(Neighbour(each.pid, each.name, each.niceness, cpus))
        return Load(tuple(sorted(found, key=lambda each: -each.cpus)), threads)

    def _sample(self) -> None:
        self._sampled = self._clock()
        seen = self._read()
        mine = next((each.cpus for each in seen if each.pid == self._own), frozenset())
        ours = below(seen, self._own)
        for each in seen:
            if each.pid in ours:
                self._ours.add(_key(each))
            elif not (mine and each.cpus) or mine & each.cpus:
                self._latest[_key(each)] = each


def _key(process: Process) -> Key:
    return process.pid, process.created
