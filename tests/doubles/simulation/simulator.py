"""Analytic machines: a public test double for anything that proposes settings or measures them.

`Machine.rate` is an exact, noise-free function of the settings; `Bench.run` adds what real machines add: noise from
trial to trial, drift, memory that runs out, and a price in (simulated) seconds. Nothing sleeps.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from autotune.knobs.knob import Context
from autotune.knobs.settings import Settings
from autotune.knobs.space import Space, build
from autotune.knobs.task_facts import TaskFacts
from autotune.probes.facts import (
    Allocator,
    Backend,
    Cpu,
    CpuBudget,
    Gpu,
    Inventory,
    LogicalCpu,
    Memory,
    NumaNode,
    ResourceLimits,
    Software,
)
from autotune.stats.measurement import Block, Measurement
from autotune.stats.outcome import Completed, Outcome, OutOfMemory

GIB = 2**30
ACTS_ON = {
    "compute": (
        *("allocator", "malloc", "channels_last", "compile", "precision", "matmul_precision"),
        *("cudnn_benchmark", "interop_threads", "omp_wait_policy"),
    ),
    "overhead": ("compile",),
    "update": ("optimizer_impl",),
    "load": ("allocator", "malloc"),
}
"""Knobs by the part of a step that they change."""


@dataclass(frozen=True)
class Work:
    """What one training step costs, in seconds on one unit (a core, or a GPU).

    Attributes:
        sample: computing one sample, in fp32, with the default layout.
        overhead: each step, whatever its batch.
        update: the optimizer's update with its default implementation.
        load: preparing one sample in the loader.
        contention: of the universal scalability law, over threads.
        exchange: one gradient exchange between two processes.
        gains: speed of a choice relative to the neutral one, by knob and value.
        memory: bytes of one sample's activations, and of everything else, in fp32.
    """

    sample: float
    overhead: float = 1e-4
    update: float = 1e-4
    load: float = 0.0
    contention: float = 0.1
    exchange: float = 1e-3
    gains: Mapping[tuple[str, Any], float] = field(default_factory=dict)
    memory: tuple[float, float] = (0.0, 0.0)

    def gain(self, settings: Settings, part: str) -> float:
        """Speed of a ``part`` of the step: the product over all knobs that act on it."""
        return math.prod(self.gains.get((name, getattr(settings, name)), 1.0) for name in ACTS_ON[part])


@dataclass(frozen=True)
class Machine:
    """One task on one machine."""

    name: str
    context: Context
    work: Work

    def space(self, level: str = "safe") -> Space:
        """What may be tried."""
        return build(self.context, level)

    def rate(self, settings: Settings) -> float:
        """True items/s, without noise."""
        return settings.global_batch / self._step_seconds(settings)

    def load_share(self, settings: Settings) -> float:
        """Share of the step that training waits for its loader."""
        load = self.work.load * settings.batch_size / self.work.gain(settings, "load")
        compute = self._compute_seconds(settings)
        return (self._overlapped(settings, compute, load) - compute) / self._step_seconds(settings)

    def fits(self, settings: Settings) -> bool:
        """True where every device (or the host) has the memory."""
        per_sample, rest = self.work.memory
        half = 0.6 if settings.precision in ("bf16", "fp16") else 1.0
        need = rest + per_sample * half * settings.batch_size
        if not self.context.device.on_host:
            return need <= self.context.inventory.gpus[0].memory_total
        return settings.processes * need <= self.context.inventory.memory.limit

    def _step_seconds(self, settings: Settings) -> float:
        work = self.work
        compute = self._compute_seconds(settings)
        load = work.load * settings.batch_size / work.gain(settings, "load")
        exchange = work.exchange * math.log2(settings.processes) * (1.0 + 0.1 * math.log2(settings.processes))
        update = work.update / work.gain(settings, "update")
        return self._overlapped(settings, compute, load) + exchange + update

    def _compute_seconds(self, settings: Settings) -> float:
        work = self.work
        speed = work.gain(settings, "compute")
        if settings.channels_last and settings.precision != "fp32":
            speed *= work.gains.get(("channels_last", settings.precision), 1.0)
        units = 1.0
        if self.context.device.on_host:
            units = settings.threads / (1 + work.contention * (settings.threads - 1))
            crowd = settings.processes * settings.threads / self.context.inventory.budget.cores
            units /= max(1.0, crowd) ** 0.9
        overhead = work.overhead / work.gain(settings, "overhead")
        copying = (
            0.0 if settings.pin_memory or self.context.device.on_host else 0.05 * work.sample * settings.batch_size
        )
        return work.sample * settings.batch_size / units / speed + overhead + copying

    def _overlapped(self, settings: Settings, compute: float, load: float) -> float:
        """Seconds of one step where the loader runs beside it, both on the same cores."""
        if settings.num_workers == 0:
            return compute + load
        cores = self.context.inventory.budget.threads
        epochs = 0.01 * (compute + load)  # workers start anew in each
        waiting = 0.02 * load / (settings.prefetch_factor or 2)
        passing = 1e-4 + 0.02 * load
        supply = load / settings.num_workers + waiting
        busy = (
            settings.processes * (load + (settings.threads * compute if self.context.device.on_host else 0.0)) / cores
        )
        slowest = _smooth_max(supply, compute + passing, busy)
        return slowest + epochs

    @cached_property
    def _optima(self) -> dict[str, tuple[float, Settings]]:
        return {}

    def optimum(self, level: str = "safe") -> float:
        """The best true rate that fits, by local search from many starts; a test holds it against enumeration."""
        if level not in self._optima:
            self._optima[level] = self._best(self.space(level))
        return self._optima[level][0]

    def best(self, level: str = "safe") -> Settings:
        """Settings that reach `optimum`."""
        self.optimum(level)
        return self._optima[level][1]

    def _best(self, space: Space) -> tuple[float, Settings]:
        """Climbs from every shape with no, one and many workers: what else there is has one summit each."""
        baseline, workers = self.context.baseline, space.values["num_workers"]
        shapes = [baseline, *(s for what, s in space.moves(baseline) if "processes" in what)]
        starts = (s.but(num_workers=count) for s in shapes for count in {0, workers[len(workers) // 2], workers[-1]})
        feasible = [s for s in starts if s in space and self.fits(s)]
        feasible.sort(key=self.rate, reverse=True)
        return max((self._climb(space, s) for s in feasible[:12]), key=lambda pair: pair[0])

    def _climb(self, space: Space, settings: Settings) -> tuple[float, Settings]:
        rate = self.rate(settings) if self.fits(settings) else 0.0
        while True:
            moves = [s for _, s in space.moves(settings) if self.fits(s)]
            top = max(moves, key=self.rate, default=settings)
            if self.rate(top) <= rate * (1 + 1e-9):
                return rate, settings
            rate, settings = self.rate(top), top


@dataclass
class Bench:
    """Runs trials on a `Machine`, reproducibly: noise depends on the seed and the order of trials only."""

    machine: Machine
    seed: int = 0
    noise: float = 0.02
    drift: float = 0.01
    """Standard deviation of the machine's random walk in speed, per trial."""
    seconds: float = 0.0
    """Simulated time spent so far."""

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self._speed = 0.0

    def run(self, settings: Settings) -> Outcome:
        """One trial."""
        self._speed = 0.9 * self._speed + self.drift * float(self.rng.standard_normal())
        luck = self.noise * float(self.rng.standard_normal())
        wobbles = 0.01 * self.rng.standard_normal(6)
        cost = 0.4 + 0.6 * (settings.processes > 1) + 30.0 * (settings.compile != "off")
        if not self.machine.fits(settings):
            self.seconds += cost
            where = "host" if self.machine.context.device.on_host else "device"
            return OutOfMemory(reason=f"{where} memory ran out", where=where)
        rate = self.machine.rate(settings) * math.exp(self._speed + luck)
        step = settings.global_batch / rate
        steps = max(1, math.ceil(0.1 / step))
        blocks = tuple(
            Block(settings.global_batch * steps, step * steps * math.exp(float(wobble)), steps) for wobble in wobbles
        )
        start = cost + step
        warmup = min(3.0, max(0.3, step * max(3, settings.num_workers * (1 + (settings.prefetch_factor or 0)))))
        cost = start + warmup + sum(block.seconds for block in blocks)
        self.seconds += cost
        share = self.machine.load_share(settings)
        measured = Measurement(blocks, warmup_seconds=warmup, load_share=share)
        return Completed(measurement=measured, seconds=cost, start_seconds=start)


def _smooth_max(*values: float) -> float:
    """A maximum with a soft knee: stages of a pipeline that nearly balance also wait for each other."""
    top = max(values)
    return float(top * sum((value / top) ** 8 for value in values) ** (1 / 8))


def inventory(threads: int = 2, cores: int = 2, sockets: int = 1, gpus: int = 0, memory: int = 8 * GIB) -> Inventory:
    """A plain machine with everything installed."""
    logical = tuple(
        LogicalCpu(k, package=(k % cores) * sockets // cores, core=k % cores, node=(k % cores) * sockets // cores)
        for k in range(threads)
    )
    nodes = tuple(NumaNode(n, tuple(c.id for c in logical if c.node == n)) for n in range(sockets))
    features = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
    accelerators = tuple(Gpu(k, "simulated", 80 * GIB, 80 * GIB, (9, 0), False, 0) for k in range(gpus))
    return Inventory(
        cpu=Cpu("amd", "simulated", "simulated", "x86_64", features, logical, nodes),
        budget=CpuBudget(tuple(range(threads)), None, threads, cores, cores, f"{threads} online CPUs"),
        memory=Memory(memory, memory, "MemTotal", memory, memory // 2, memory // 2, None),
        gpus=accelerators,
        limits=ResourceLimits(None),
        software=Software(
            python="3.12",
            platform="linux",
            torch="2.9",
            cuda="12" if gpus else None,
            compiler="g++",
            compiler_reason=None,
            default_threads=cores,
            default_interop_threads=cores,
            start_method="fork",
            backends=(Backend("gloo", True, ""), Backend("nccl", gpus > 0, "" if gpus else "no GPU")),
            allocators=(Allocator("jemalloc", "libjemalloc.so.2"),),
        ),
    )


def context(
    machine: Inventory, batch: int, *, convolutions: bool = False, train_seconds: float | None = None, **changes: Any
) -> Context:
    """A context whose baseline is what PyTorch does by default."""
    device = "cuda" if machine.gpus else "cpu"
    task = TaskFacts(
        name="simulated",
        samples=50_000,
        iterable=False,
        parameters=1_000_000,
        has_convolutions=convolutions,
        has_batch_norm=convolutions,
        optimizer="AdamW",
        optimizer_impls=("default", "foreach", "fused"),
        sample_bytes=3 * 64 * 64 * 4,
        sample_variation=1.0,
        unit="samples",
        device=device,
        current={},
    )
    threads = machine.budget.cores
    baseline = Settings(threads=threads, interop_threads=threads, batch_size=batch)
    return Context(machine, replace(task, **changes), baseline, train_seconds, compile_seconds=15.0)
