"""A small, valid profile for the store's tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from autotune.core.machine import MachineType
from autotune.core.match import Here
from autotune.core.profile import Evidence, Failure, NotOffered, Profile, Target
from autotune.knobs.settings import Settings
from autotune.store import registry
from autotune.store.places import Place
from benchmarks.simulation import profiles
from benchmarks.simulation.profiles import MACHINE

BASELINE = Settings(threads=8, batch_size=64)
TUNED = BASELINE.but(num_workers=2, precision="bf16")


def find(here: Here, roots: Sequence[Place]) -> registry.Match | None:
    """The profile that would be applied."""
    return registry.search(here, roots).match


def profile(machine: MachineType = MACHINE, target: str = "resnet", **changes: Any) -> Profile:
    """A profile in which every level gained."""
    values: dict[str, Any] = {
        "target": Target(target, "samples", "cuda" if machine.gpus else "cpu", 11_000_000, 50_000),
        "recommended": "amp",
        "baseline": BASELINE,
        "baseline_rate": 1240.25,
        "evidence": Evidence(
            trials=31,
            seconds=72.5,
            failures=(Failure("out-of-memory", "host memory ran out", {"batch_size": 512}),),
            not_offered=(NotOffered("backend", "nccl", "no CUDA device"),),
            warnings=("the machine was busy",),
        ),
    }
    plain = profiles.profile(TUNED, {"safe": BASELINE.but(num_workers=2)}, machine)
    return replace(plain, **{**values, **changes})
