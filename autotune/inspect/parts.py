"""Measures the parts of a training step, in a trial of its own. `parts` is its `TrialSpec.inspect`."""

from __future__ import annotations

import math
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch.profiler import profile

from autotune import devices
from autotune.inspect.step_clock import StackSampler, step_clock
from autotune.inspect.verdict import KINDS, Bound, Inspection, Part
from autotune.trial import process_tree
from autotune.trial.child.measured_loop import CpuContention, MeasuredLoop, Steps

BLOCKS = (3, 8)
"""Blocks of steps on the clock, at least and at most."""
CLOCK_SHARE = 0.7
"""Of the trial's time; the rest is for the profiler."""
PROFILED_SECONDS, MOST_PROFILED = 0.1, 3
CHAIN, TRIES = 200, 3
BUSY = 0.6
"""A process that runs for at least this share of the time computes; others wait, but not for a CPU."""
FROM_STORAGE = 2**12
"""A loader that waits counts as waiting for storage if it reads at least this many bytes per batch."""
EXPLAINS = 0.25
"""Computing, or memory traffic, bounds an operator if it takes this share of its time at the machine's rate."""
FRESH = 2**20
"""For tensors of at least this many bytes, glibc may get memory from the kernel in each step, and give it back."""
OTHERS = ("Optimizer.", "enumerate(DataLoader)")
"""Prefixes of the profiler's names for what the update and the loader call."""
UNCOUNTED = ("conv", "rnn", "lstm", "gru", "attention")
"""Parts of names of operators that compute, though the profiler counts no operations for them."""


def parts(loop: MeasuredLoop, pace: float) -> Steps[dict[str, Any]]:
    """Measure a warm ``loop``, whose steps take ``pace`` seconds; return its `Inspection` as plain data. All ranks do
    the same; rank 0's counts."""
    found = yield from _clocked(loop, pace, CLOCK_SHARE * loop.spec.max_seconds)
    rates = _machine_rates(loop)
    loop.goes_on()
    operators = yield from _profiled(loop, pace)
    return asdict(replace(found, roofline=roofline(operators, rates)))


@dataclass
class Operator:
    """All calls of an operator with one set of input shapes in one step, under PyTorch's profiler.

    Attributes:
        seconds: its own, without the operators that it calls.
        flops: operations of matrix products and convolutions; 0 for all others.
        bytes: read and written.
        fresh: bytes of large new tensors, whose pages the kernel may have to clear.
    """

    name: str
    calls: float = 0.0
    seconds: float = 0.0
    flops: float = 0.0
    bytes: float = 0.0
    fresh: float = 0.0


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


def _profiled(loop: MeasuredLoop, pace: float) -> Steps[list[Operator]]:
    """Return the operators of a step's passes by PyTorch's profiler."""
    steps = loop.agree(max(1, min(MOST_PROFILED, int(PROFILED_SECONDS / max(pace, 1e-6)))))
    with _profile() as profiler:
        began, faults = time.thread_time(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        wall = yield from loop.timed(steps)
        running = min(1.0, (time.thread_time() - began) / wall)
        cleared = resource.getpagesize() * (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults)
    loop.goes_on()
    size = 2 if loop.spec.settings.precision in ("bf16", "fp16") else 4
    found: dict[tuple[Any, ...], Operator] = {}
    for event in profiler.events():
        if "::" not in event.name or event.name.startswith("autograd::"):
            continue
        shapes = tuple(tuple(shape) for shape in event.input_shapes or () if shape and isinstance(shape[0], int))
        key = event.name, shapes, _is_called_by(event, OTHERS)
        allocated = event.self_cpu_memory_usage + event.self_device_memory_usage
        own = found.setdefault(key, Operator(event.name))
        # The profiler's time on a CPU goes on while the thread has none.
        micros = max(running * event.self_cpu_time_total, event.self_device_time_total)
        own.calls += 1 / steps
        own.seconds += micros / 1e6 / steps
        own.flops += (event.flops or 0) / steps
        own.bytes += (max(0, allocated) + size * sum(map(math.prod, shapes))) / steps
        own.fresh += (allocated if allocated >= FRESH else 0) / steps
    share = min(1.0, cleared / steps / max(1.0, sum(each.fresh for each in found.values())))
    for each in found.values():
        each.fresh *= share
    return [each for (_, _, elsewhere), each in found.items() if not elsewhere]


def _profile() -> profile:
    return profile(record_shapes=True, with_flops=True, profile_memory=True)


def _is_called_by(event: Any, names: tuple[str, ...]) -> bool:
    while event is not None and not event.name.startswith(names):
        event = event.cpu_parent
    return event is not None


@dataclass(frozen=True)
class Rates:
    """Rates that this machine reaches with the threads of the trial.

    Attributes:
        call_seconds: that the profiler shows for an operator with nothing to compute.
        flops: operations per second of a large matrix product.
        copied: bytes per second that a copy reads and writes.
        cleared: bytes per second of new memory that are written for the first time.
    """

    call_seconds: float
    flops: float
    copied: float
    cleared: float


def roofline(operators: Iterable[Operator], rates: Rates) -> dict[str, float]:
    """Return seconds of ``operators`` of the passes of one step, by `KINDS`, on a machine with these ``rates``."""
    seconds = dict.fromkeys(KINDS, 0.0)
    for each in operators:
        calling = min(each.seconds, each.calls * rates.call_seconds)
        uncounted = any(name in each.name for name in UNCOUNTED)
        computing = each.seconds if uncounted else each.flops / rates.flops
        traffic = each.bytes / rates.copied + each.fresh / rates.cleared
        kind = "compute" if computing >= traffic else "bandwidth"
        if max(computing, traffic) < EXPLAINS * each.seconds:
            kind = "other"
        if max(computing, traffic) < calling:  # so small that the call explains the rest, too
            kind = "overhead"
        seconds["overhead"] += calling
        seconds[kind] += each.seconds - calling
    return seconds


@torch.no_grad()
def _machine_rates(loop: MeasuredLoop) -> Rates:
    """Measure the machine in a fraction of a second."""
    device = loop.session.device
    kind = torch.bfloat16 if loop.spec.settings.precision == "bf16" else torch.float32
    own = devices.of(device)
    rows, count = own.rows, own.copied
    matrix = torch.ones(rows, rows, dtype=kind, device=device)
    source, target = (torch.zeros(count, dtype=torch.uint8, device=device) for _ in range(2))
    with _profile() as profiler:
        value = factor = torch.ones(1)
        for _ in range(CHAIN):
            value = value * factor
    calls = (event.self_cpu_time_total for event in profiler.events() if event.name == "aten::mul")

    def fastest(work: Callable[[], Any]) -> float:
        seconds = []
        for _ in range(TRIES):
            began = time.perf_counter()
            work()
            own.synchronize()
            seconds.append(time.perf_counter() - began)
        return min(seconds)

    return Rates(
        call_seconds=statistics.median(calls) / 1e6,
        flops=2 * rows**3 / fastest(lambda: matrix @ matrix),
        copied=2 * count / fastest(lambda: target.copy_(source)),
        cleared=count / fastest(source.clone),
    )
