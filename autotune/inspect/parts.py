"""Measures the parts of a training step, in a trial of its own. `parts` is its `TrialSpec.inspect`."""

from __future__ import annotations

import os
import re
from dataclasses import asdict, replace
from typing import Any

from torch.profiler import profile

from autotune.inspect.step_clock import StackSampler, step_clock
from autotune.inspect.verdict import Bound, Inspection, Operator, Part
from autotune.trial import process_tree
from autotune.trial.child.measured_loop import MeasuredLoop, Steps, neighbours

BLOCKS = (3, 8)
"""Blocks of steps on the clock, at least and at most."""
CLOCK_SHARE = 0.7
"""Of the trial's time; the rest is for the profiler."""
PROFILED_SECONDS, MOST_PROFILED = 0.05, 20
BUSY = 0.6
"""A process that runs for at least this share of the time computes; others wait, but not for a CPU."""
FROM_STORAGE = 2**12
"""A loader that waits counts as waiting for storage if it reads at least this many bytes per batch."""
TURNS = 4
"""Batches of each worker from which on their shares are compared."""
OPERATOR = re.compile(r"\w+::\w+")
"""Name of an operator in the profiler's table, which has kernels and parts of autograd, too."""
SHOWN = 3
"""Operators that are named."""


def parts(loop: MeasuredLoop, pace: float) -> Steps[dict[str, Any]]:
    """Measure a warm ``loop``, whose steps take ``pace`` seconds; return its `Inspection` as plain data. All ranks do
    the same; rank 0's counts."""
    found = yield from _clocked(loop, pace, CLOCK_SHARE * loop.spec.max_seconds)
    loop.goes_on()
    return asdict(replace(found, operators=(yield from _profiled(loop, pace))))


def _clocked(loop: MeasuredLoop, pace: float, seconds: float) -> Steps[Inspection]:
    """Run blocks of steps on the clock, about ``seconds`` in all."""
    least, most = BLOCKS
    count = loop.agree(max(least, min(most, int(seconds / max(pace, 1e-6)))))
    steps = loop.agree(max(1, int(seconds / count / max(pace, 1e-6))))
    blocks, wall = [], 0.0
    workers = process_tree.descendants(os.getpid())
    with step_clock(loop) as clock, StackSampler(clock) as sampler:
        others, main, theirs = neighbours(), _used(os.getpid()), [*map(_used, workers)]
        for _ in range(count):
            clock.take()
            wall += yield from loop.timed(steps)
            blocks.append(clock.take())
        load = others.load()
        _, waited, main_read = map(float.__sub__, _used(os.getpid()), main)
        used = [tuple(map(float.__sub__, _used(each), own)) for each, own in zip(workers, theirs, strict=True)]
        ran, queued, read = (sum((each[which] for each in used), 0.0) for which in range(3))
    loads = sum(block[Part.LOADER] for block in blocks)
    busy = max(clock.loading / max(1e-9, loads - waited), ran / max(1e-9, wall * len(workers) - queued))
    loader = Bound.WORKERS if workers else Bound.MAIN_PROCESS
    if busy < BUSY:
        loader = Bound.DISK if (read + main_read) / (count * steps) >= FROM_STORAGE else Bound.SLOW_SOURCE
    enough = count * steps >= TURNS * loop.spec.settings.num_workers >= TURNS * len(workers)  # one without data ends
    largest = max((each[0] for each in used), default=0.0) / ran if ran and enough else 0.0
    return Inspection(
        blocks=tuple(blocks),
        step_seconds=wall / (count * steps),
        items=loop.step_items * loop.session.world_size,
        lost=load.wait_share,
        neighbours=load.cpus,
        places=sampler.places(),
        loader=loader,
        load_threads=loop.load_threads(),
        most_of_workers=largest,
    )


def _used(pid: int) -> tuple[float, float, float]:
    """Return what the main thread of ``pid`` has so far: seconds on a CPU, of waiting for one, and bytes read."""
    try:
        with open(f"/proc/{pid}/schedstat") as times, open(f"/proc/{pid}/io") as counts:
            on_cpu, in_queue, _ = map(int, times.read().split())
            stored = next(line for line in counts if line.startswith("read_bytes")).split()[1]
    except (OSError, ValueError, StopIteration):
        return 0.0, 0.0, 0.0  # it has ended, or the kernel does not show it
    return on_cpu / 1e9, in_queue / 1e9, float(stored)


def _profiled(loop: MeasuredLoop, pace: float) -> Steps[tuple[Operator, ...]]:
    """Run steps under PyTorch's profiler. Return the operators with most time of their own, on CPU or device."""
    steps = loop.agree(max(1, min(MOST_PROFILED, int(PROFILED_SECONDS / max(pace, 1e-6)))))
    with profile() as profiler:
        yield from loop.timed(steps)
    loop.goes_on()
    found = [each for each in profiler.key_averages() if OPERATOR.fullmatch(each.key)]
    times = {each.key: float(max(each.self_cpu_time_total, each.self_device_time_total)) for each in found}
    most = sorted(found, key=lambda each: -times[each.key])[:SHOWN]
    whole = sum(times.values())
    return tuple(Operator(each.key.partition("::")[2], times[each.key] / whole, each.count / steps) for each in most)
