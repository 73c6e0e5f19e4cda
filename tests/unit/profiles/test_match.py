"""The verdict on a profile, field by field."""

from dataclasses import fields, replace
from typing import Any

import pytest

from autotune.knobs.settings import Settings
from autotune.profiles.format import MachineType, Profile
from autotune.profiles.match import COMPATIBLE, EXACT, FACTS, NONE, SIMILAR, Here, compare
from tests.doubles.proven_profile import MACHINE, profile

SOFTWARE = {"torch": "2.9.0", "cuda": "12.8", "driver": "560.35.03"}
GPUS = replace(
    MACHINE, key="gpus", gpus=("h200", "h200"), gpu_gib=(141, 141), gpu_links=("nvlink",), features=("avx2", "avx512f")
)


def made(machine: MachineType = MACHINE, **software: Any) -> Profile:
    return replace(profile(Settings(), machine=machine), software=SOFTWARE | software)


@pytest.mark.parametrize(
    ("change", "verdict", "words"),
    [
        ({}, EXACT, ""),
        ({"vendor": "intel"}, SIMILAR, "vendor: profile amd, here intel"),
        ({"family": "epyc-zen5"}, SIMILAR, "family: profile epyc-zen4, here epyc-zen5"),
        ({"threads": 4}, COMPATIBLE, "threads: profile 8, here 4"),
        ({"threads": 16}, COMPATIBLE, "threads: profile 8, here 16"),
        ({"threads": 2}, SIMILAR, "threads: profile 8, here 2"),
        ({"cores": 4}, COMPATIBLE, "cores: profile 8, here 4"),
        ({"cores": 1}, SIMILAR, "cores: profile 8, here 1"),
        ({"sockets": 2}, COMPATIBLE, "sockets: profile 1, here 2"),
        ({"nodes": 2}, COMPATIBLE, "nodes: profile 1, here 2"),
        ({"memory_gib": 16}, COMPATIBLE, "memory_gib: profile 32, here 16"),
        ({"features": ("avx2",)}, SIMILAR, "features: not here: avx512f"),
        ({"features": ("avx512f", "avx2", "amx")}, COMPATIBLE, "features: only here: amx"),
        ({"features": ("avx512f", "avx2")}, EXACT, ""),
        ({"architecture": "aarch64"}, NONE, "architecture: profile x86_64, here aarch64"),
        ({"gpus": ("h200",)}, NONE, "device: profile cpu, here cuda"),
    ],
)
def test_one_changed_fact(change: dict[str, Any], verdict: str, words: str) -> None:
    found = compare(made(), Here(replace(MACHINE, **change), SOFTWARE))
    assert found.verdict == verdict
    assert words in found.sentence
    assert bool(found.sentence) is (verdict != EXACT)


NO_GPUS = {"gpus": (), "gpu_gib": (), "gpu_links": ()}


@pytest.mark.parametrize(
    ("change", "device", "verdict"),
    [
        ({}, "cuda", EXACT),
        ({"gpus": ("h200",), "gpu_gib": (141,), "gpu_links": ("nvlink",)}, "cuda", COMPATIBLE),
        ({"gpus": ("h200",) * 8, "gpu_gib": (141,) * 8}, "cuda", SIMILAR),
        ({"gpus": ("h100",) * 2}, "cuda", SIMILAR),
        ({"gpu_gib": (80, 80)}, "cuda", SIMILAR),
        ({"gpu_links": ("pcie-switch",)}, "cuda", SIMILAR),
        (NO_GPUS, "cuda", NONE),
        ({}, "cpu", EXACT),  # trained on the CPU of a machine with GPUs
        (NO_GPUS, "cpu", COMPATIBLE),
    ],
)
def test_gpus(change: dict[str, Any], device: str, verdict: str) -> None:
    one = made(GPUS)
    one = replace(one, target=replace(one.target, device=device))
    assert compare(one, Here(replace(GPUS, **change), SOFTWARE)).verdict == verdict


@pytest.mark.parametrize(
    ("software", "verdict"),
    [
        ({"torch": "2.9.1+cpu"}, EXACT),
        ({"torch": "2.10.0"}, COMPATIBLE),
        ({"torch": "3.9.0"}, SIMILAR),
        ({"torch": None}, EXACT),
        ({"torch": 2.9}, EXACT),
        ({"cuda": "12.4"}, EXACT),
        ({"cuda": "13.0"}, COMPATIBLE),
        ({"driver": "570.1"}, COMPATIBLE),
    ],
)
def test_versions(software: dict[str, Any], verdict: str) -> None:
    assert compare(made(**software), Here(MACHINE, SOFTWARE)).verdict == verdict


def test_every_fact_is_compared() -> None:
    assert {field.name for field in fields(MachineType)} == {"key", *FACTS}
