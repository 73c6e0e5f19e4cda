"""A small, valid profile for these tests, and how to look for it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.knobs.settings import Settings
from autotune.knobs.task_facts import LeftOut
from autotune.profiles import file, registry
from autotune.profiles.format import Evidence, Failure, MachineType, Profile, Target
from autotune.profiles.match import Here, Match
from autotune.profiles.places import Place, default_path
from tests.doubles import proven_profile as profiles
from tests.doubles.proven_profile import MACHINE

BASELINE = Settings(threads=8, batch_size=64)
TUNED = BASELINE.but(num_workers=2, precision="bf16")


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
            not_offered=(LeftOut("backend", "nccl", "no CUDA device"),),
            warnings=("the machine was busy",),
        ),
    }
    plain = profiles.profile(TUNED, {"safe": BASELINE.but(num_workers=2)}, machine)
    return replace(plain, **{**values, **changes})


def put(root: Path, machine: MachineType = MACHINE, target: str = "resnet") -> Path:
    """A profile file where it belongs in the registry ``root``."""
    return file.write(default_path(machine.key, target, root), profile(machine, target))


def here(machine: MachineType = MACHINE, target: str | None = "resnet") -> Here:
    """This machine, with the software that the profiles were measured with."""
    return Here(machine, profile().software, (target,) if target else ())


def find(where: Here, roots: Sequence[Place]) -> Match | None:
    """The profile that would be applied."""
    return registry.search(where, roots).match
