"""Example records for the report's tests: one machine, and profiles that end well, badly and in doubt."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from autotune.knobs.settings import Settings
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
from autotune.profiles.format import Evidence, Failure, LevelResult, NotOffered, Profile, Target, machine_type
from autotune.search.history import Trial
from autotune.stats.measurement import Block, Measurement
from autotune.stats.outcome import Completed, Crashed
from autotune.stats.proof import IDENTITY, Proof

BASELINE = Settings(threads=8, batch_size=64)
SAFE = BASELINE.but(num_workers=4, prefetch_factor=4, optimizer_impl="fused")
AMP = SAFE.but(precision="bf16")
MAX = AMP.but(batch_size=256)
OWN = Settings(threads=2, batch_size=64)
WORKERS = OWN.but(num_workers=2)


def tried(settings: Settings, rate: float, seconds: float = 0.0) -> Trial:
    """Return a trial; a rate of 0 failed."""
    measured = Measurement(tuple(Block(round(100 * rate), 100.0, 10) for _ in range(3)))
    return Trial(settings, Completed(measurement=measured) if rate else Crashed("no"), "safe", "moves", seconds)


def inventory(**changes: Any) -> Inventory:
    """A container with 8 of 16 CPUs and no GPU."""
    values: dict[str, Any] = {
        "cpu": Cpu(
            vendor="amd",
            model="AMD EPYC 9B14 [96-Core]",
            family="epyc-zen4",
            architecture="x86_64",
            features=("avx2", "avx512f", "avx512_bf16"),
            logical=tuple(LogicalCpu(id=k, package=0, core=k // 2, node=0) for k in range(16)),
            nodes=(NumaNode(0, tuple(range(16))),),
        ),
        "budget": CpuBudget(
            cpus=tuple(range(16)),
            quota=8.0,
            threads=8,
            cores=8,
            performance_cores=8,
            limit="cgroup CPU quota 8.0 (of 16 online CPUs)",
        ),
        "memory": Memory(
            total=64 * 2**30,
            limit=32 * 2**30,
            limit_source="cgroup memory.max",
            available=30 * 2**30,
            shm_total=64 * 2**20,
            shm_free=64 * 2**20,
            transparent_hugepages="madvise",
        ),
        "gpus": (),
        "limits": ResourceLimits(processes=None),
        "software": Software(
            python="3.11.9",
            platform="linux",
            torch="2.9.0",
            cuda=None,
            compiler=None,
            compiler_reason="no C++ compiler found",
            default_threads=8,
            default_interop_threads=8,
            start_method="fork",
            backends=(Backend("gloo", True, ""), Backend("nccl", False, "no CUDA device")),
            allocators=(Allocator("jemalloc", "libjemalloc.so.2"),),
            environment=(("OMP_NUM_THREADS", "8"),),
        ),
    }
    return Inventory(**{**values, **changes})


def gpu(index: int) -> Gpu:
    """One GPU with another process on it."""
    return Gpu(
        index=index,
        uuid=f"GPU-00000000-0000-0000-0000-00000000000{index}",
        name="NVIDIA H200",
        memory_total=141 * 2**30,
        memory_free=140 * 2**30,
        capability=(9, 0),
        mig=False,
        node=0,
        foreign_processes=1,
    )


def gain(value: float, rounds: int = 12) -> Proof:
    """A proof with a four percent interval on both sides."""
    return Proof(value, value * 0.96, value * 1.05, 0.95, rounds)


def profile(**changes: Any) -> Profile:
    """Every level gains; amp is recommended."""
    values: dict[str, Any] = {
        "machine": machine_type(inventory()),
        "software": {"python": "3.11.9", "torch": "2.9.0", "cuda": None},
        "target": Target("resnet", "samples", "cpu", 11_000_000, 50_000),
        "recommended": "amp",
        "baseline": BASELINE,
        "baseline_rate": 1240.4,
        "levels": {
            "safe": LevelResult(SAFE, 2010.2, gain(1.62), True),
            "amp": LevelResult(AMP, 2605.0, gain(2.1), True),
            "max": LevelResult(MAX, 3100.0, gain(2.5), True),
        },
        "evidence": Evidence(
            trials=31,
            seconds=72.4,
            failures=(
                Failure("out-of-memory", "host memory ran out", {"batch_size": 512}),
                Failure("crashed", "the loader's worker died", {"num_workers": 8}),
                Failure("out-of-memory", "host memory ran out", {"batch_size": 1024}),
            ),
            not_offered=(
                NotOffered("backend", "nccl", "no CUDA device"),
                NotOffered("cudnn_benchmark", True, "no CUDA device"),
                NotOffered("precision", "tf32", "no CUDA device"),
                NotOffered("compile", "default", "no C++ compiler found"),
            ),
            warnings=("the machine was busy during 2 of 31 trials",),
        ),
    }
    return Profile(**{**values, **changes})


def no_gain() -> Profile:
    """Nothing helped: safe was measured slower, amp in doubt, max never tried."""
    levels = {
        "safe": LevelResult(BASELINE, 1240.4, Proof(0.99, 0.97, 1.005, 0.95, 12), False),
        "amp": LevelResult(BASELINE, 1240.4, Proof(1.02, 0.98, 1.07, 0.95, 16), False, "bf16 gained too little"),
        "max": LevelResult(BASELINE, 1240.4, IDENTITY, False, "no larger batch fits"),
    }
    return profile(recommended="safe", levels=levels)


def crowded() -> Profile:
    """The worst case for one screen: every knob moves, everything fails, many reasons."""
    settings = Settings(
        processes=2,
        threads=4,
        interop_threads=2,
        num_workers=2,
        prefetch_factor=8,
        pin_memory=True,
        batch_size=128,
        channels_last=True,
        optimizer_impl="fused",
        allocator="jemalloc",
        cudnn_benchmark=True,
        compile="max-autotune",
        precision="bf16",
    )
    long = "a reason that goes on and on " * 10
    result = LevelResult(settings, 123456789.0, Proof(11.11, 10.22, 12.33, 0.95, 120), True, long)
    evidence = Evidence(
        trials=300,
        seconds=7265.0,
        failures=tuple(Failure("crashed", f"{long} {k}", {}) for k in range(20)),
        not_offered=tuple(NotOffered("compile", str(k), f"{long} {k}") for k in range(20)),
        warnings=(long,) * 9,
        partial=True,
    )
    levels = dict.fromkeys(("safe", "amp", "max"), result)
    return profile(levels=levels, recommended="max", evidence=evidence, target=replace(profile().target, name="t" * 99))


def single_generation() -> Profile:
    """An interrupted proof: the interval is open."""
    open_ended = LevelResult(SAFE, 2010.2, Proof(1.62, 0.0, math.inf, 0.95, 3), False)
    return profile(recommended="safe", levels=dict.fromkeys(("safe", "amp", "max"), open_ended))
