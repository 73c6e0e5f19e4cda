"""Processors: lists, topology, kinds, names, caches, NUMA nodes, throttling."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import MACHINES, amd_cpuinfo, arm_server, caches, cpu_list, host, laptop, node, server

from autotune.probes import cpu
from autotune.probes.system import CommandResult
from tests.doubles.recorded import Recorded, Recording


@given(st.sets(st.integers(0, 4000), max_size=60))
def test_cpu_lists_read_back(ids: set[int]) -> None:
    assert cpu.parse_cpu_list(cpu_list(ids)) == tuple(sorted(ids))


@given(st.text(alphabet="0123456789-, :x\n", max_size=20))
def test_odd_cpu_lists_are_refused_or_read(text: str) -> None:
    try:
        ids = cpu.parse_cpu_list(text)
    except ValueError:
        return
    assert list(ids) == sorted(set(ids))
    assert not set(text) & {":", "x"}


@pytest.mark.parametrize("text", ["3-1", "a", "0-", "-1", "1 2", "0-99999999", "999999", "0-7:1/2"])
def test_malformed_cpu_lists_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a list of CPUs"):
        cpu.parse_cpu_list(text)


@pytest.mark.parametrize(
    ("machine", "packages", "cores", "logical", "vendor", "family"),
    [
        ("laptop", 1, 14, 20, "intel", "raptor-lake"),
        ("server", 2, 64, 128, "intel", "sapphire-rapids"),
        ("pod_v2", 1, 32, 64, "amd", "epyc-zen3"),
        ("slurm_step", 1, 64, 64, "amd", "epyc-zen2"),
        ("arm_server", 1, 64, 64, "arm", "neoverse-v1"),
    ],
)
def test_recorded_machines(
    tmp_path: Path, machine: str, packages: int, cores: int, logical: int, vendor: str, family: str
) -> None:
    found = cpu.probe(MACHINES[machine]().at(tmp_path))
    assert (found.packages, found.cores, len(found.logical)) == (packages, cores, logical)
    assert (found.vendor, found.family) == (vendor, family)


def test_hybrid_cores_have_kinds(tmp_path: Path) -> None:
    kinds = {c.id: c.kind for c in cpu.probe(laptop().at(tmp_path)).logical}
    assert {i for i, kind in kinds.items() if kind == "performance"} == set(range(12))
    assert {i for i, kind in kinds.items() if kind == "efficiency"} == set(range(12, 20))


@pytest.mark.parametrize(
    ("capacities", "slow"),
    [
        ([1024, 1024, 1024, 1024], set()),
        ([430, 430, 1024, 1024], {0, 1}),
        ([250, 800, 800, 1024], {0}),  # three tiers: the middle one is big
        ([0, 0, 0, 0], set()),
    ],
)
def test_arm_kinds_come_from_capacity(tmp_path: Path, capacities: list[int], slow: set[int]) -> None:
    files = {f"/sys/devices/system/cpu/cpu{i}/cpu_capacity": str(value) for i, value in enumerate(capacities)}
    machine = host([(i,) for i in range(4)], cpuinfo="processor : 0", machine="aarch64").having(files)
    found = cpu.probe(machine.at(tmp_path))
    assert {c.id for c in found.logical if c.kind == "efficiency"} == slow
    assert {c.kind for c in found.logical} == ({"efficiency", "performance"} if slow else {"uniform"})


@pytest.mark.parametrize(
    ("siblings", "online", "cores"),
    [
        ([(0, 4), (1, 5), (2, 6), (3, 7)], "0-7", 4),
        ([(0, 1), (2, 3)], "0-3", 2),
        ([(0, 4), (1,), (2, 6), (3, 7)], "0-4,6-7", 4),  # CPU 5 is offline
    ],
)
def test_smt_siblings_are_one_core(tmp_path: Path, siblings: list[tuple[int, ...]], online: str, cores: int) -> None:
    machine = host(siblings, cpuinfo="").having({"/sys/devices/system/cpu/online": online})
    found = cpu.probe(machine.at(tmp_path))
    assert found.cores == cores
    assert cpu_list(c.id for c in found.logical) == online


def test_restarted_core_ids_are_told_apart() -> None:
    places = cpu.physical_cores({0: (0, 0, (0, 1)), 1: (0, 0, (0, 1)), 2: (0, 0, (2, 3)), 3: (0, 0, (2, 3))})
    assert places[0] == places[1] != places[2] == places[3]


def test_core_ids_of_minus_one_are_replaced() -> None:
    assert cpu.physical_cores({0: (0, -1, (0,)), 1: (0, -1, (1,))}) == {0: (0, 0), 1: (0, 1)}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 5), st.integers(1, 3)), min_size=1, max_size=20))
def test_cores_are_exactly_the_sibling_groups(groups: list[tuple[int, int, int]]) -> None:
    topology, expected, first = {}, {}, 0
    for package, core, threads in groups:
        siblings = tuple(range(first, first + threads))
        topology |= dict.fromkeys(siblings, (package, core, siblings))
        expected |= dict.fromkeys(siblings, siblings)
        first += threads
    places = cpu.physical_cores(topology)
    assert all((places[a] == places[b]) == (expected[a] == expected[b]) for a in places for b in places)


def test_without_sysfs_cpuinfo_and_mask_answer(tmp_path: Path) -> None:
    machine = host([(0,), (1,)], cpuinfo=amd_cpuinfo(2, 25, 17, "AMD EPYC")).without("/sys/devices")
    found = cpu.probe(machine.at(tmp_path))
    assert (found.cores, len(found.logical), found.nodes, found.caches) == (2, 2, (), ())


def test_numa_nodes_with_gaps_and_without_memory(tmp_path: Path) -> None:
    files = {**node(0, "0-1", 8 << 30, "10 20"), **node(2, "", 16 << 30, "20 10")}
    found = cpu.probe(host([(0,), (1,)], cpuinfo="").having(files).at(tmp_path))
    assert [(n.id, n.cpus, n.memory) for n in found.nodes] == [(0, (0, 1), 8 << 30), (2, (), 16 << 30)]
    assert found.nodes[1].distances == (20, 10)


def test_server_nodes(tmp_path: Path) -> None:
    found = cpu.probe(server().at(tmp_path))
    assert [n.memory >> 30 for n in found.nodes] == [256, 0, 256, 256]
    assert {c.node for c in found.logical if c.package == 1} == {2, 3}


def test_caches_are_listed_once(tmp_path: Path) -> None:
    found = cpu.probe(laptop().at(tmp_path)).caches
    assert [(c.level, c.size >> 10, c.shared_by[0]) for c in found] == [
        (1, 48, 0),
        (1, 48, 2),
        (2, 1280, 0),
        (2, 1280, 2),
        (3, 24576, 0),
    ]


def test_a_cache_without_a_size_is_left_out(tmp_path: Path) -> None:
    machine = host([(0,)], cpuinfo="").having(caches(0, [(1, "Data", "", "0"), (2, "Unified", "1M", "0")]))
    assert [c.level for c in cpu.probe(machine.at(tmp_path)).caches] == [2]


def test_arm_without_a_model_name_is_called_by_its_family(tmp_path: Path) -> None:
    found = cpu.probe(arm_server().at(tmp_path))
    assert found.model == "neoverse-v1"
    assert {"neon", "sve", "bf16"} <= set(found.features)


SYSCTL = """hw.logicalcpu: 10
hw.physicalcpu: 10
hw.perflevel0.logicalcpu: 6
hw.perflevel1.logicalcpu: 4
hw.optional.arm64: 1
hw.optional.arm.FEAT_BF16: 1
hw.optional.arm.FEAT_I8MM: 0
machdep.cpu.brand_string: Apple M2 Pro
"""


def test_macos(tmp_path: Path) -> None:
    recording = Recording(platform="darwin", machine="aarch64", commands={"sysctl hw machdep.cpu": (0, SYSCTL)})
    found = cpu.probe(Recorded(tmp_path, recording))
    assert (found.vendor, found.family, found.cores) == ("apple", "m2-pro", 10)
    assert [c.kind for c in found.logical] == ["efficiency"] * 4 + ["performance"] * 6
    assert found.features == ("bf16", "neon")


ANSWER = {
    "vendor_id_raw": "AuthenticAMD",
    "family": 25,
    "model": 17,
    "brand_raw": "AMD EPYC 9354",
    "flags": ["avx512f", "avx512_bf16", "avx2", "x"],
}


class Asked(Recorded):
    """A recorded machine that answers py-cpuinfo's command line."""

    calls = 0

    def run(self, command: Iterable[str], timeout: float = 60.0, cwd: str | None = None) -> CommandResult:
        if "cpuinfo" in command:
            type(self).calls += 1
            return CommandResult(0, json.dumps(ANSWER), "")
        return super().run(command, timeout, cwd)


def test_an_empty_cpuinfo_is_filled_in_once(tmp_path: Path) -> None:
    (tmp_path / "root" / "proc").mkdir(parents=True)
    (tmp_path / "root" / "proc" / "cpuinfo").write_text("")
    cache = tmp_path / "cache"
    cache.mkdir()
    for _ in range(2):
        found = cpu.probe(Asked(tmp_path / "root", Recording(), cache))
        assert (found.vendor, found.family) == ("amd", "epyc-zen4")
        assert found.features == ("avx2", "avx512_bf16", "avx512f")
    assert Asked.calls == 1
