"""Measures the parts of a training step, in a trial of its own. `parts` is its `TrialSpec.inspect`."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.profiler import profile

from autotune.inspect.inspection import Inspection, Loading, Operator, Part, Roofline, Sizes
from autotune.inspect.step_clock import StackWatch, step_clock
from autotune.runtime.appliers.optimizer import parameters_of
from autotune.trial import process_tree
from autotune.trial.child.cpu_contention import CpuContention
from autotune.trial.child.measured_loop import MeasuredLoop, Steps, peak_memory, synchronize
from autotune.trial.child.task_facts import tensor_bytes

BLOCKS = (3, 8)
"""Blocks of steps on the clock, at least and at most."""
CLOCK_SHARE = 0.7
"""Of the trial's time; the rest is for the profiler."""
PROFILED_SECONDS, MOST_PROFILED = 0.1, 3
SLOWEST = 3
CHAIN, TRIES = 200, 3
EXPLAINS = 0.3
"""Memory traffic at the machine's rate must explain this share of an operator's time before memory bounds it."""
ROWS, COPIED = {"cpu": 1024, "cuda": 8192}, {"cpu": 2**26, "cuda": 2**30}
"""Of a matrix product, and bytes of a copy, that show what the machine can do."""
WITHIN = {"Optimizer.": Part.UPDATE, "enumerate(DataLoader)": Part.LOADER}
"""How the names begin under which the profiler shows what calls an operator."""
CONVOLUTION, WITH_BACKWARD = "aten::conv", 3
"""The profiler counts operations of the forward pass; a backward pass takes twice as many."""


def parts(loop: MeasuredLoop, pace: float) -> Steps[dict[str, Any]]:
    """`Inspection` of a warm loop as plain data. All ranks do the same; rank 0's counts.

    Args:
        loop: warm.
        pace: seconds of a step.
    """
    found = yield from _clocked(loop, pace, CLOCK_SHARE * loop.spec.max_seconds)
    peak = peak_memory(loop.session.device)
    machine = Machine.measure(loop.session.device, bf16=loop.spec.settings.precision == "bf16")
    loop.goes_on()
    operators, most = yield from _profiled(loop, pace)
    optimizers = loop.session.preparer.optimizers
    state = [value for each in optimizers for entry in each.state.values() for value in entry.values()]
    sizes = Sizes(
        parameters=sum(map(tensor_bytes, parameters_of(*optimizers))),
        optimizer_state=sum(tensor_bytes(value) for value in state if isinstance(value, Tensor)),
        step=most,
        peak=peak,
    )
    roofline = machine.roofline([each for each in operators if each.part is Part.PASSES], found.step_seconds)
    slowest = tuple(sorted(operators, key=lambda each: -each.seconds)[:SLOWEST])
    return asdict(replace(found, roofline=roofline, slowest=slowest, sizes=sizes))


def _clocked(loop: MeasuredLoop, pace: float, seconds: float) -> Steps[Inspection]:
    """Blocks of steps on the clock, about ``seconds`` in all."""
    least, most = BLOCKS
    count = loop.agree(max(least, min(most, int(seconds / max(pace, 1e-6)))))
    steps = loop.agree(max(1, int(seconds / count / max(pace, 1e-6))))
    blocks, wall = [], 0.0
    with step_clock(loop) as clock, StackWatch(clock) as watch:
        workers = process_tree.descendants(os.getpid())
        others, began = CpuContention(root=os.getppid()), (_used([os.getpid()]), _used(workers))
        for _ in range(count):
            clock.take()
            wall += yield from loop.timed(steps)
            blocks.append(clock.take())
        taken, main, theirs = others.taken(), _used([os.getpid()]) - began[0], _used(workers) - began[1]
    loads = sum(block[Part.LOADER] for block in blocks) - main.waiting
    loading = Loading(
        main_busy=min(1.0, clock.loading / loads) if loads > 0 else 0.0,
        worker_busy=theirs.running / max(1e-9, wall * len(workers) - theirs.waiting),
        storage_bytes=(main.read + theirs.read) / (count * steps),
    )
    items = loop.step_items * loop.session.world_size
    step_seconds = wall / (count * steps)
    return Inspection(tuple(blocks), step_seconds, items, taken.lost, taken.neighbours, watch.places(), loading)


@dataclass(frozen=True)
class _Used:
    """Seconds on a CPU, seconds of waiting for one that others had, and bytes from storage, of some processes."""

    running: float = 0.0
    waiting: float = 0.0
    read: float = 0.0

    def __add__(self, other: _Used) -> _Used:
        return _Used(self.running + other.running, self.waiting + other.waiting, self.read + other.read)

    def __sub__(self, other: _Used) -> _Used:
        return _Used(self.running - other.running, self.waiting - other.waiting, self.read - other.read)


def _used(pids: Iterable[int]) -> _Used:
    """By the main threads of ``pids`` so far; 0 if the kernel does not tell."""
    total = _Used()
    for pid in pids:
        try:
            with open(f"/proc/{pid}/schedstat") as times, open(f"/proc/{pid}/io") as counts:
                running, waiting, _ = map(int, times.read().split())
                read = next(line for line in counts if line.startswith("read_bytes")).split()[1]
        except (OSError, ValueError, StopIteration):
            continue
        total += _Used(running / 1e9, waiting / 1e9, float(read))
    return total


def _profiled(loop: MeasuredLoop, pace: float) -> Steps[tuple[list[Operator], int]]:
    """The operators of a step by PyTorch's profiler, and the most bytes that the step holds."""
    steps = loop.agree(max(1, min(MOST_PROFILED, int(PROFILED_SECONDS / max(pace, 1e-6)))))
    with profile(record_shapes=True, with_flops=True, profile_memory=True) as profiler:
        began, ran = time.perf_counter(), time.thread_time()
        yield from loop.timed(steps)
        wall, ran = time.perf_counter() - began, time.thread_time() - ran
    loop.goes_on()
    on_cpu = loop.session.device.type == "cpu"
    size = 2 if loop.spec.settings.precision in ("bf16", "fp16") else 4
    found: dict[tuple[Any, ...], Operator] = {}
    for event in (events := list(profiler.events())):
        if "::" in event.name and not event.name.startswith("autograd::"):
            each = _operator(event, steps, min(1.0, ran / wall) if on_cpu else 1.0, size)
            known = found.get((each.name, each.shapes, each.part), replace(each, calls=0, seconds=0, flops=0, bytes=0))
            found[each.name, each.shapes, each.part] = _sum(known, each)
    return list(found.values()), _most_held(events)


def _operator(event: Any, steps: int, running: float, size: int) -> Operator:
    """One call of an operator, as its part in one of ``steps``.

    Args:
        event: of the profiler.
        steps: that were profiled.
        running: share of the time in which the training thread had a CPU: operators did not run in the rest.
        size: bytes of a number.
    """
    shapes = tuple(tuple(shape) for shape in event.input_shapes or () if shape and isinstance(shape[0], int))
    allocated = max(0, event.self_cpu_memory_usage) + max(0, event.self_device_memory_usage)
    micros = max(running * event.self_cpu_time_total, event.self_device_time_total)
    flops = (event.flops or 0) * (WITH_BACKWARD if event.name.startswith(CONVOLUTION) else 1)
    return Operator(
        event.name,
        shapes,
        next((part for name, part in WITHIN.items() if _is_within(event, name)), Part.PASSES),
        calls=1 / steps,
        seconds=micros / 1e6 / steps,
        flops=flops / steps,
        bytes=(allocated + size * sum(map(math.prod, shapes))) / steps,
    )


def _is_within(event: Any, name: str) -> bool:
    while event is not None and not event.name.startswith(name):
        event = event.cpu_parent
    return event is not None


def _sum(left: Operator, right: Operator) -> Operator:
    return replace(
        left,
        calls=left.calls + right.calls,
        seconds=left.seconds + right.seconds,
        flops=left.flops + right.flops,
        bytes=left.bytes + right.bytes,
    )


def _most_held(events: Iterable[Any]) -> int:
    """Largest sum of what was allocated and not yet freed."""
    held = most = 0
    for event in sorted(events, key=lambda each: each.time_range.start):
        held += event.self_cpu_memory_usage + event.self_device_memory_usage
        most = max(most, held)
    return most


@dataclass(frozen=True)
class Machine:
    """What this machine reaches with the threads of the trial.

    Attributes:
        call_seconds: what the profiler shows for an operator that has nothing to compute.
        flops: operations per second of a large matrix product.
        bytes: per second, that a copy reads and writes.
    """

    call_seconds: float
    flops: float
    bytes: float

    @classmethod
    @torch.no_grad()
    def measure(cls, device: torch.device, *, bf16: bool) -> Machine:
        """In a fraction of a second."""
        rows, count = ROWS[device.type], COPIED[device.type]
        matrix = torch.ones(rows, rows, dtype=torch.bfloat16 if bf16 else torch.float32, device=device)
        source, target = (torch.zeros(count, dtype=torch.uint8, device=device) for _ in range(2))
        flops = 2 * rows**3 / _fastest(lambda: matrix @ matrix, device)
        return cls(_call_seconds(), flops, 2 * count / _fastest(lambda: target.copy_(source), device))

    def roofline(self, operators: Iterable[Operator], step_seconds: float) -> Roofline:
        """What bounds ``operators``. The machine is at least as fast as the fastest of them, so no share exceeds 1."""
        overhead = compute = bandwidth = flops = moved = 0.0
        best = self.flops
        for each in operators:
            calling = min(each.seconds, each.calls * self.call_seconds)
            rest, traffic = each.seconds - calling, each.bytes / self.bytes
            overhead += calling
            if traffic > max(each.flops / self.flops, EXPLAINS * each.seconds):
                bandwidth += rest
            else:
                compute += rest
            flops, moved = flops + each.flops, moved + min(traffic, each.seconds)
            best = max(best, each.flops / each.seconds) if each.seconds > 0 else best
        step = max(step_seconds, overhead + compute + bandwidth)
        return Roofline(overhead, compute, bandwidth, flops / step / best, moved / step)


def _fastest(work: Callable[[], Any], device: torch.device) -> float:
    """Seconds of the fastest of a few runs."""

    def seconds() -> float:
        began = time.perf_counter()
        work()
        synchronize(device)
        return time.perf_counter() - began

    return min(seconds() for _ in range(TRIES))


def _call_seconds() -> float:
    """The median over a chain of products of one number each."""
    with profile(record_shapes=True, with_flops=True, profile_memory=True) as profiler:
        value = factor = torch.ones(1)
        for _ in range(CHAIN):
            value = value * factor
    own = sorted(event.self_cpu_time_total for event in profiler.events() if event.name == "aten::mul")
    return own[len(own) // 2] / 1e6 if own else 0.0
