"""A small, valid profile and machine for the store's tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autotune.core.machine import MachineType
from autotune.core.profile import Evidence, Failure, LevelResult, NotOffered, Profile, Target
from autotune.core.proof import Proof
from autotune.core.settings import Settings

MACHINE = MachineType(
    key="amd-epyc-zen4-8c-32g",
    vendor="amd",
    family="epyc-zen4",
    architecture="x86_64",
    threads=8,
    cores=8,
    sockets=1,
    nodes=1,
    memory_gib=32,
    gpus=(),
    features=("avx2", "avx512f"),
)
BASELINE = Settings(threads=8, batch_size=64)
TUNED = BASELINE.but(num_workers=2, precision="bf16")


def profile(machine: MachineType = MACHINE, target: str = "resnet", **changes: Any) -> Profile:
    """A profile in which every level gained."""
    level = LevelResult(TUNED, 2010.5, Proof(1.62, 1.55, 1.7, 0.95, 12), True)
    values: dict[str, Any] = {
        "machine": machine.as_dict(),
        "software": {"python": "3.11.9", "torch": "2.9.0", "cuda": None},
        "target": Target(target, "samples", "cuda" if machine.gpus else "cpu", 11_000_000, 50_000),
        "recommended": "amp",
        "baseline": BASELINE,
        "baseline_rate": 1240.25,
        "levels": {"safe": replace(level, settings=BASELINE.but(num_workers=2)), "amp": level, "max": level},
        "evidence": Evidence(
            trials=31,
            seconds=72.5,
            failures=(Failure("out-of-memory", "host memory ran out", {"batch_size": 512}),),
            not_offered=(NotOffered("backend", "nccl", "no CUDA device"),),
            warnings=("the machine was busy",),
        ),
    }
    return Profile(**{**values, **changes})
