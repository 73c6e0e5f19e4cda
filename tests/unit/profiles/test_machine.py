import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.probes.facts import CpuBudget, Inventory
from autotune.profiles.format import MEMORY_GIB, gpu_slug, machine_type, memory_class, slug
from tests.doubles.simulation.simulator import GIB, inventory


def named(machine: Inventory, *gpus: str, family: str = "epyc-zen4", vendor: str = "amd") -> Inventory:
    """``machine`` with its processor and GPUs called so."""
    found = tuple(replace(gpu, name=name) for gpu, name in zip(machine.gpus, gpus, strict=True))
    return replace(machine, cpu=replace(machine.cpu, family=family, vendor=vendor), gpus=found)


def within(machine: Inventory, cpus: tuple[int, ...]) -> Inventory:
    """``machine`` through an affinity mask."""
    return replace(machine, budget=CpuBudget(cpus, None, len(cpus), len(cpus), len(cpus), "affinity mask"))


@pytest.mark.parametrize(
    ("machine", "key"),
    [
        (named(inventory(8, 8, memory=32 * GIB)), "amd-epyc-zen4-8c-32g"),
        (named(inventory(2, 2, memory=GIB // 2)), "amd-epyc-zen4-2c-1g"),
        (named(inventory(2, 2, memory=GIB * 3 // 2)), "amd-epyc-zen4-2c-1.5g"),
        (named(inventory(2, 1)), "amd-epyc-zen4-1c2t-8g"),
        (named(inventory(128, 64, sockets=2)), "amd-epyc-zen4-2s-64c128t-8g"),
        (
            named(inventory(16, 16, memory=64 * GIB, gpus=1), "NVIDIA GeForce RTX 4090"),
            "amd-epyc-zen4-16c-64g-rtx-4090",
        ),
        (
            named(inventory(64, 64, sockets=2, gpus=8, memory=512 * GIB), *["NVIDIA H200"] * 8),
            "amd-epyc-zen4-2s-64c-512g-h200x8",
        ),
        (named(inventory(8, 8, gpus=3), "NVIDIA H200", "Tesla T4", "NVIDIA H200"), "amd-epyc-zen4-8c-8g-h200x2-t4"),
        (named(inventory(), family="", vendor="unknown"), "unknown-2c-8g"),
        (named(inventory(), family="family25-model17", vendor="amd"), "amd-family25-model17-2c-8g"),
        (named(inventory(), family="Sapphire Rapids/SP!", vendor="intel"), "intel-sapphire-rapids-sp-2c-8g"),
    ],
)
def test_the_key_is_readable(machine: Inventory, key: str) -> None:
    assert machine_type(machine).key == key


def test_the_budget_counts_and_not_the_hardware() -> None:
    big = inventory(64, 64, sockets=2, memory=64 * GIB)
    found = machine_type(within(replace(big, memory=replace(big.memory, limit=2 * GIB)), (0, 1, 2, 3)))
    assert (found.threads, found.cores, found.sockets, found.nodes, found.memory_gib) == (4, 4, 1, 1, 2)
    assert "2s" not in found.key
    assert found.key.endswith("-4c-2g")


@given(st.sampled_from(MEMORY_GIB[:30]), st.floats(0.87, 1.13))
def test_a_usual_size_less_some_per_cent_is_that_size(gib: float, share: float) -> None:
    assert memory_class(int(gib * share * GIB)) == gib


@given(st.text())
def test_a_slug_is_a_safe_file_name_and_stays(text: str) -> None:
    found = slug(text)
    assert re.fullmatch(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?", found)
    assert "--" not in found
    assert slug(found) == found


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "a100-sxm4-40gb-mig-1g.5gb"),
        ("", "gpu"),
        ("显卡", "gpu"),
    ],
)
def test_slugs_of_gpus(name: str, expected: str) -> None:
    assert gpu_slug(replace(inventory(gpus=1).gpus[0], name=name)) == expected
