"""Rules over recorded facts: each fires on its machine, and none on a healthy one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.inspect.doctor import Finding, Patient, findings
from autotune.probes.facts import Allocator, NumaNode
from autotune.stats.load import QUIET, Load, Neighbour
from tests.doubles.results import inventory


def healthy(**changes: Any) -> Patient:
    """A machine with nothing to mend: 16 CPUs, all of them allowed."""
    found = inventory()
    found = replace(
        found,
        gpus=(),
        budget=replace(found.budget, quota=None, threads=16),
        memory=replace(found.memory, shm_total=8 * 2**30, transparent_hugepages="madvise"),
        software=replace(
            found.software,
            torch="2.7.1",
            compiler="g++",
            platform="linux",
            environment=(),
            allocators=(Allocator("tcmalloc", "/usr/lib/libtcmalloc.so.4"),),
        ),
    )
    parts = {name: replace(getattr(found, name), **values) for name, values in changes.items()}
    return Patient(replace(found, **parts), QUIET)


def names_of(patient: Patient) -> list[str]:
    return [found.name for found in findings(patient)]


def only(patient: Patient) -> Finding:
    (found,) = findings(patient)
    return found


def test_a_healthy_machine_has_no_finding() -> None:
    assert names_of(healthy()) == []


@pytest.mark.parametrize(
    ("part", "facts", "name", "mend"),
    [
        ("software", {"allocators": ()}, "allocator", "apt-get install libtcmalloc-minimal4"),
        ("software", {"compiler": None, "compiler_reason": "g++ is not installed"}, "compiler", "g++"),
        ("software", {"torch": None}, "torch", "pip install torch"),
        ("software", {"environment": (("OMP_NUM_THREADS", "1"),)}, "OMP_NUM_THREADS", "unset OMP_NUM_THREADS"),
        ("software", {"environment": (("KMP_AFFINITY", "compact"),)}, "KMP_AFFINITY", "unset KMP_AFFINITY"),
        ("memory", {"shm_total": 64 * 2**20}, "shm", "--shm-size=8g"),
        ("memory", {"transparent_hugepages": "never"}, "huge-pages", "echo madvise"),
        ("budget", {"quota": 1.5, "threads": 1}, "cpu-quota", "--cpus 2"),
        ("budget", {"quota": 0.5, "threads": 1}, "cpu-quota", "--cpus 1"),
    ],
)
def test_each_thing_is_named_with_what_mends_it(part: str, facts: dict[str, Any], name: str, mend: str) -> None:
    found = only(healthy(**{part: facts}))
    assert found.name == name
    assert mend in found.mend


@pytest.mark.parametrize(
    ("part", "facts"),
    [
        ("software", {"environment": (("OMP_NUM_THREADS", "16"), ("OMP_PROC_BIND", "false"))}),
        ("memory", {"shm_total": None}),
        ("memory", {"transparent_hugepages": None}),
        ("budget", {"quota": 8.0, "threads": 8}),
        ("budget", {"quota": 64.5}),
    ],
)
def test_what_costs_nothing_or_is_unknown_is_left_out(part: str, facts: dict[str, Any]) -> None:
    assert names_of(healthy(**{part: facts})) == []


@pytest.mark.parametrize(
    ("switches", "name"),
    [
        ({"power": ("The CPU frequency governor is powersave, which holds the clock down.",)}, ["governor"]),
        ({"power": ("The machine runs on its battery: it will be slower.",)}, ["battery"]),
        ({"moves_pages": True}, []),
    ],
)
def test_switches(switches: dict[str, Any], name: list[str]) -> None:
    assert names_of(replace(healthy(), **switches)) == name


def test_pages_wander_only_between_several_nodes() -> None:
    nodes = tuple(NumaNode(each, (each,)) for each in range(2))
    found = only(replace(healthy(cpu={"nodes": nodes}), moves_pages=True))
    assert found.name == "numa-balancing"


def test_a_neighbour_that_takes_a_core_is_named() -> None:
    load = Load(4.0, 0.0, (Neighbour(7, "stress", 0, 4.0),), 16)
    found = only(replace(healthy(), load=load))
    assert (found.name, found.gain) == ("neighbour", "up to 1.3x if all CPUs are used")
    assert "stress (pid 7)" in found.what
    assert names_of(replace(healthy(), load=Load(0.3, 0.0, (Neighbour(7, "sh", 0, 0.3),), 16))) == []


def test_a_gpu_that_others_use_and_a_build_without_cuda() -> None:
    (gpu,) = replace(inventory(gpus=(gpu_of(),))).gpus
    patient = healthy()
    patient = replace(patient, inventory=replace(patient.inventory, gpus=(gpu,)))
    assert names_of(patient) == ["torch-cuda", "gpu-neighbour", "gpu-clocks"]


def gpu_of() -> Any:
    from autotune.probes.facts import Gpu

    return Gpu(0, "", "A100", 2**35, 2**34, (8, 0), False, None, (), 2, ("power cap",))


@pytest.mark.parametrize(("length", "found"), [(75, []), (76, ["tmpdir"])])
def test_a_temporary_folder_too_long_for_a_workers_socket(length: int, found: list[str]) -> None:
    """Seen: with 75 characters a DataLoader's worker starts, with 76 it does not."""
    patient = healthy()
    patient = replace(patient, temporary="/" + "x" * (length - 1))
    assert names_of(patient) == found
