"""Example records for the report's tests: one machine, and profiles that end well, badly and in doubt."""

import math
from dataclasses import replace
from typing import Any

from autotune.knobs.settings import Settings
from autotune.knobs.task_facts import LeftOut
from autotune.probes.facts import Backend, Inventory
from autotune.profiles.format import Evidence, Failure, LevelResult, Profile, machine_type
from autotune.search.history import Trial
from autotune.stats.measurement import Block, Measurement
from autotune.stats.outcome import Completed, Crashed
from autotune.stats.proof import IDENTITY, Proof
from tests.doubles import profiles
from tests.doubles.profiles import BASELINE
from tests.doubles.simulation import simulator
from tests.doubles.simulation.simulator import GIB

SAFE = BASELINE.but(num_workers=4, prefetch_factor=4, optimizer_impl="fused")
AMP = SAFE.but(precision="bf16")
MAX = AMP.but(batch_size=256)
OWN = Settings(threads=2, batch_size=64)
WORKERS = OWN.but(num_workers=2)


def tried(settings: Settings, rate: float, seconds: float = 0.0) -> Trial:
    """Return a trial; a rate of 0 failed."""
    measured = Measurement(tuple(Block(round(100 * rate), 100.0, 10) for _ in range(3)))
    return Trial(settings, Completed(measurement=measured) if rate else Crashed("no"), "safe", seconds)


def inventory(**changes: Any) -> Inventory:
    """A container with 8 of 16 CPUs and no GPU."""
    plain = simulator.inventory(16, 8, memory=64 * GIB)
    limit = "cgroup CPU quota 8.0 (of 16 online CPUs)"
    memory = replace(plain.memory, limit=32 * GIB, limit_source="cgroup memory.max", available=30 * GIB)
    software = replace(plain.software, python="3.11.9", torch="2.9.0", environment=(("OMP_NUM_THREADS", "8"),))
    backends = (Backend("gloo", True, ""), Backend("nccl", False, "no CUDA device"))
    values: dict[str, Any] = {
        "cpu": replace(
            plain.cpu, model="AMD EPYC 9B14 [96-Core]", family="epyc-zen4", features=("avx2", "avx512f", "avx512_bf16")
        ),
        "budget": replace(plain.budget, quota=8.0, threads=8, limit=limit),
        "memory": replace(memory, shm_total=64 * 2**20, shm_free=64 * 2**20, transparent_hugepages="madvise"),
        "software": replace(software, compiler=None, compiler_reason="no C++ compiler found", backends=backends),
    }
    return replace(plain, **{**values, **changes})


def gain(value: float, rounds: int = 12) -> Proof:
    """A proof with a four percent interval on both sides."""
    return Proof(value, value * 0.96, value * 1.05, 0.95, rounds)


def profile(**changes: Any) -> Profile:
    """Every level gains; amp is recommended."""
    values: dict[str, Any] = {
        "baseline_rate": 1240.4,
        "levels": {
            "safe": LevelResult(SAFE, 2010.2, gain(1.62), True),
            "amp": LevelResult(AMP, 2605.0, gain(2.1), True),
            "max": LevelResult(MAX, 6202.0, gain(2.5), True),
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
                LeftOut("backend", "nccl", "no CUDA device"),
                LeftOut("cudnn_benchmark", True, "no CUDA device"),
                LeftOut("precision", "tf32", "no CUDA device"),
                LeftOut("compile", "default", "no C++ compiler found"),
            ),
            warnings=("the machine was busy during 2 of 31 trials",),
            noise_scale=2.0,
        ),
    }
    return replace(profiles.profile(machine_type(inventory())), **{**values, **changes})


def no_gain() -> Profile:
    """Nothing helped: safe was measured slower, amp in doubt, max never tried."""
    levels = {
        "safe": LevelResult(BASELINE, 1240.4, Proof(0.99, 0.97, 1.005, 0.95, 12), False),
        "amp": LevelResult(BASELINE, 1240.4, Proof(1.02, 0.98, 1.07, 0.95, 16), False, "bf16 gained too little"),
        "max": LevelResult(BASELINE, 1240.4, IDENTITY, False, "no larger batch fits"),
    }
    return profile(recommended="none", levels=levels)


def crowded() -> Profile:
    """The worst case for one screen: every knob moves, everything fails, many reasons."""
    many = AMP.but(processes=2, threads=4, interop_threads=2, num_workers=2, prefetch_factor=8, batch_size=128)
    switches = {"pin_memory": True, "channels_last": True, "cudnn_benchmark": True}
    settings = many.but(**switches, allocator="jemalloc", compile="max-autotune")
    long = "a reason that goes on and on " * 10
    result = LevelResult(settings, 123456789.0, Proof(11.11, 10.22, 12.33, 0.95, 120), True, long)
    evidence = Evidence(
        trials=300,
        seconds=7265.0,
        failures=tuple(Failure("crashed", f"{long} {k}", {}) for k in range(20)),
        not_offered=tuple(LeftOut("compile", str(k), f"{long} {k}") for k in range(20)),
        warnings=(long,) * 9,
        partial=True,
    )
    levels = dict.fromkeys(("safe", "amp", "max"), result)
    return profile(levels=levels, recommended="max", evidence=evidence, target=replace(profile().target, name="t" * 99))


def single_replicate() -> Profile:
    """An interrupted proof: the interval is open."""
    open_ended = LevelResult(SAFE, 2010.2, Proof(1.62, 0.0, math.inf, 0.95, 3), False)
    return profile(recommended="safe", levels=dict.fromkeys(("safe", "amp", "max"), open_ended))
