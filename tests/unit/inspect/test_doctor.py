"""Rules over recorded facts: each fires on its machine, and none on a healthy one."""

from dataclasses import replace
from typing import Any

import pytest

from autotune.inspect.doctor import findings
from autotune.probes.cpu_time import QUIET, Load, Neighbour
from autotune.probes.facts import Allocator, Gpu, Inventory, NumaNode
from tests.doubles.results import inventory


def healthy(**changes: Any) -> Inventory:
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
    return replace(found, **{name: replace(getattr(found, name), **values) for name, values in changes.items()})


def names_of(machine: Inventory, load: Load = QUIET, **switches: Any) -> list[str]:
    return [found.name for found in findings(machine, load, **switches)]


@pytest.mark.parametrize(
    ("part", "facts", "fixes"),
    [
        ("software", {"allocators": ()}, {"allocator": "apt-get install libtcmalloc-minimal4"}),
        ("software", {"compiler": None, "compiler_reason": "g++ is not installed"}, {"compiler": "g++"}),
        ("software", {"torch": None}, {"torch": "pip install torch"}),
        ("software", {"environment": (("OMP_NUM_THREADS", "1"),)}, {"OMP_NUM_THREADS": "unset OMP_NUM_THREADS"}),
        ("software", {"environment": (("KMP_AFFINITY", "compact"),)}, {"KMP_AFFINITY": "unset KMP_AFFINITY"}),
        ("memory", {"shm_total": 64 * 2**20}, {"shm": "--shm-size=8g"}),
        ("memory", {"transparent_hugepages": "never"}, {"huge-pages": "echo madvise"}),
        ("budget", {"quota": 1.5, "threads": 1}, {"cpu-quota": "--cpus 2"}),
        ("budget", {"quota": 0.5, "threads": 1}, {"cpu-quota": "--cpus 1"}),
        # What costs nothing or is unknown is left out.
        ("software", {}, {}),
        ("software", {"environment": (("OMP_NUM_THREADS", "16"), ("OMP_PROC_BIND", "false"))}, {}),
        ("memory", {"shm_total": None}, {}),
        ("memory", {"transparent_hugepages": None}, {}),
        ("budget", {"quota": 8.0, "threads": 8}, {}),
        ("budget", {"quota": 64.5}, {}),
    ],
)
def test_each_thing_is_named_with_what_mends_it(part: str, facts: dict[str, Any], fixes: dict[str, str]) -> None:
    found = {each.name: each.fix for each in findings(healthy(**{part: facts}), QUIET)}
    assert found.keys() == fixes.keys()
    assert all(mend in found[name] for name, mend in fixes.items())


@pytest.mark.parametrize(
    ("nodes", "switches", "names"),
    [
        (1, {"power": ("The CPU frequency governor is powersave, which holds the clock down.",)}, ["governor"]),
        (1, {"power": ("The machine runs on its battery: it will be slower.",)}, ["battery"]),
        (1, {"moves_pages": True}, []),
        (2, {"moves_pages": True}, ["numa-balancing"]),
        (2, {}, []),
        # Seen: with 75 characters a DataLoader's worker starts, with 76 it does not.
        (1, {"temporary": "/" + "x" * 74}, []),
        (1, {"temporary": "/" + "x" * 75}, ["tmpdir"]),
    ],
)
def test_switches_and_folders(nodes: int, switches: dict[str, Any], names: list[str]) -> None:
    machine = healthy(cpu={"nodes": tuple(NumaNode(each, (each,)) for each in range(nodes))})
    assert names_of(machine, **switches) == names


def test_a_neighbour_that_takes_a_core_is_named() -> None:
    (found,) = findings(healthy(), Load(4.0, 0.0, (Neighbour(7, "stress", 0, 4.0),), 16))
    assert (found.name, found.gain) == ("neighbour", "up to 1.3x if all CPUs are used")
    assert "stress (pid 7)" in found.what
    assert names_of(healthy(), Load(0.3, 0.0, (Neighbour(7, "sh", 0, 0.3),), 16)) == []


def test_a_gpu_that_others_use_and_a_build_without_cuda() -> None:
    gpu = Gpu(0, "A100", 2**35, 2**34, (8, 0), False, None, (), 2, ("power cap",))
    assert names_of(replace(healthy(), gpus=(gpu,))) == ["torch-cuda", "gpu-neighbour", "gpu-clocks"]
