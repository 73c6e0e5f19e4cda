"""Inventories and profiles for tests of knobs and of what `autotune.load` settles on."""

from dataclasses import replace
from typing import Any

from autotune.knobs.settings import Settings
from autotune.probes.facts import Inventory
from autotune.profiles.format import Profile, Target
from tests.doubles import proven_profile as profiles
from tests.doubles.simulation import simulator


def inventory(threads: int = 2, gpus: int = 0, features: tuple[str, ...] = ("avx2",), **software: Any) -> Inventory:
    """A machine with so many CPUs and GPUs."""
    plain = simulator.inventory(threads, threads, gpus=gpus)
    facts = {"torch": "2.9.0", "default_threads": None, **software}
    return replace(plain, cpu=replace(plain.cpu, features=features), software=replace(plain.software, **facts))


def profile(
    settings: Settings,
    *,
    device: str = "cpu",
    rate: float = 1000.0,
    target: dict[str, Any] | None = None,
    **levels: Settings,
) -> Profile:
    """A profile that recommends level ``safe``; ``settings`` at every level but those named; ``rate`` in items/s."""
    machine = replace(profiles.MACHINE, key="amd-epyc-zen4-64c-64g", threads=64, cores=64, memory_gib=64)
    tuned = replace(Target("train", "samples", device, 100, 1000), **(target or {}))
    return replace(profiles.profile(settings, levels, machine, rate), target=tuned)
