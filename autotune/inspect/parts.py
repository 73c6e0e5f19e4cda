"""Measures the parts of a training step, in a trial of its own. `parts` is its `TrialSpec.inspect`."""

from __future__ import annotations

import math
import os
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from torch.profiler import profile

from autotune.inspect.step_clock import StackSampler, step_clock
from autotune.inspect.verdict import OPERATOR_BOUNDS, Bound, Inspection, Part
from autotune.trial import process_tree
from autotune.trial.child.measured_loop import CpuContention, MeasuredLoop, Steps

BLOCKS = (3, 8)
"""Blocks of steps on the clock, at least and at most."""
CLOCK_SHARE = 0.7
"""Of the trial's time; the rest is for the profiler."""
PROFILED_SECONDS, MOST_PROFILED = 0.1, 3
BUSY = 0.6
"""A process that runs for at least this share of the time computes; others wait, but not for a CPU."""
FROM_STORAGE = 2**12
"""A loader that waits counts as waiting for storage if it reads at least this many bytes per batch."""
CALL_SECONDS = 1.5e-5
"""A call that takes no longer than this under the profiler takes the time whatever it computes."""
INTENSITY = 16
"""Operations per value read or written, from which on computing takes longer than memory traffic: machines compute 5 to
100 in the time of one (the roofline model: Williams, Waterman, Patterson 2009)."""
BYTES = 4
"""Of a value."""
OTHERS = ("Optimizer.", "enumerate(DataLoader)")
"""Prefixes of the profiler's names for what the update and the loader call."""
UNCOUNTED = ("conv", "rnn", "lstm", "gru", "attention")
"""Parts of names of operators that compute, though the profiler counts no operations for them."""
SHOWN = 3
"""Operators that are named."""


def parts(loop: MeasuredLoop, pace: float) -> Steps[dict[str, Any]]:
    """Measure a warm ``loop``, whose steps take ``pace`` seconds; return its `Inspection` as plain data. All ranks do
    the same; rank 0's counts."""
    found = yield from _clocked(loop, pace, CLOCK_SHARE * loop.spec.max_seconds)
    loop.goes_on()
    uses, operators = yield from _profiled(loop, pace)
    return asdict(replace(found, uses=uses, operators=operators))


def _clocked(loop: MeasuredLoop, pace: float, seconds: float) -> Steps[Inspection]:
    """Run blocks of steps on the clock, about ``seconds`` in all."""
    least, most = BLOCKS
    count = loop.agree(max(least, min(most, int(seconds / max(pace, 1e-6)))))
    steps = loop.agree(max(1, int(seconds / count / max(pace, 1e-6))))
    blocks, wall = [], 0.0
    workers = process_tree.descendants(os.getpid())
    with step_clock(loop) as clock, StackSampler(clock) as sampler:
        others, main, theirs = CpuContention(root=os.getppid()), _used([os.getpid()]), _used(workers)
        for _ in range(count):
            clock.take()
            wall += yield from loop.timed(steps)
            blocks.append(clock.take())
        lost, neighbours = others.taken()
        _, waited, main_read = map(float.__sub__, _used([os.getpid()]), main)
        ran, queued, read = map(float.__sub__, _used(workers), theirs)
    loads = sum(block[Part.LOADER] for block in blocks)
    busy = max(clock.loading / max(1e-9, loads - waited), ran / max(1e-9, wall * len(workers) - queued))
    loader = Bound.WORKERS if workers else Bound.MAIN_PROCESS
    if busy < BUSY:
        loader = Bound.DISK if (read + main_read) / (count * steps) >= FROM_STORAGE else Bound.SLOW_SOURCE
    items, step_seconds = loop.step_items * loop.session.world_size, wall / (count * steps)
    return Inspection(tuple(blocks), step_seconds, items, lost, neighbours, sampler.places(), loader)


def _used(pids: Iterable[int]) -> tuple[float, float, float]:
    """Return what the main threads of ``pids`` have so far: seconds on a CPU, of waiting for one, and bytes read."""
    ran = waited = read = 0.0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/schedstat") as times, open(f"/proc/{pid}/io") as counts:
                on_cpu, in_queue, _ = map(int, times.read().split())
                stored = next(line for line in counts if line.startswith("read_bytes")).split()[1]
        except (OSError, ValueError, StopIteration):
            continue  # it has ended, or the kernel does not show it
        ran, waited, read = ran + on_cpu / 1e9, waited + in_queue / 1e9, read + int(stored)
    return ran, waited, read


def _profiled(loop: MeasuredLoop, pace: float) -> Steps[tuple[dict[Bound, float], dict[str, float]]]:
    """Run steps under PyTorch's profiler. Return the seconds of the passes of one step by `OPERATOR_BOUNDS`, and those
    of the operators that take most of them."""
    steps = loop.agree(max(1, min(MOST_PROFILED, int(PROFILED_SECONDS / max(pace, 1e-6)))))
    with profile(record_shapes=True, with_flops=True, profile_memory=True) as profiler:
        yield from loop.timed(steps)
    loop.goes_on()
    calls: defaultdict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for event in profiler.events():
        if "::" in event.name and not event.name.startswith("autograd::") and not _is_called_by(event, OTHERS):
            calls[event.name, str(event.input_shapes)].append(event)
    uses, operators = dict.fromkeys(OPERATOR_BOUNDS, 0.0), defaultdict[str, float](float)
    for (name, _), events in calls.items():
        usual = statistics.median(map(_seconds, events))  # the thread may have lost its CPU in some
        uses[use(events[0], usual)] += usual * len(events) / steps
        operators[name] += usual * len(events) / steps
    most = sorted(operators, key=lambda name: -operators[name])[:SHOWN]
    return uses, {name: operators[name] for name in most}


def use(event: Any, seconds: float) -> Bound:
    """Return what an operator takes the ``seconds`` of a call for, by an event of PyTorch's profiler."""
    if seconds <= CALL_SECONDS:
        return Bound.OVERHEAD
    shapes = [shape for shape in event.input_shapes or () if shape and isinstance(shape[0], int)]
    written = max(0, event.self_cpu_memory_usage + event.self_device_memory_usage) / BYTES
    intense = (event.flops or 0) >= INTENSITY * max(1.0, written + sum(map(math.prod, shapes)))
    return Bound.COMPUTE if intense or any(name in event.name for name in UNCOUNTED) else Bound.MEMORY


def _seconds(event: Any) -> float:
    return float(max(event.self_cpu_time_total, event.self_device_time_total)) / 1e6


def _is_called_by(event: Any, names: tuple[str, ...]) -> bool:
    while event is not None and not event.name.startswith(names):
        event = event.cpu_parent
    return event is not None
