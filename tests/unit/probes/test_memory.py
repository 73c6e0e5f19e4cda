"""Host memory: limits, what is left, shared memory, kills."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.probes import memory
from tests.doubles.machines import GIB, KIB, MACHINES, MIB, V1_UNLIMITED, Machine, host

GROUP = "/sys/fs/cgroup"


def plain() -> Machine:
    return host([(0,)], cpuinfo="", memory=64 * GIB)


@pytest.mark.parametrize(
    ("machine", "limit", "source"),
    [
        ("laptop", 32 * GIB, "MemTotal"),
        ("pod_v2", 2 * GIB, "cgroup memory.max"),
        ("pod_v1", 4 * GIB, "cgroup hierarchical_memory_limit"),  # an ancestor the container cannot see
    ],
)
def test_recorded_machines(tmp_path: Path, machine: str, limit: int, source: str) -> None:
    found = memory.probe(MACHINES[machine]().at(tmp_path))
    assert (found.limit, found.limit_source) == (limit, source)


@pytest.mark.parametrize(
    ("text", "limit"),
    [("2147483648", 2 * GIB), ("max", 64 * GIB), (str(128 * GIB), 64 * GIB), (V1_UNLIMITED, 64 * GIB), ("?", 64 * GIB)],
)
def test_limits_never_exceed_the_machine(tmp_path: Path, text: str, limit: int) -> None:
    assert memory.probe(plain().having({f"{GROUP}/memory.max": text}).at(tmp_path)).limit == limit


def test_reclaimable_cache_counts_as_free(tmp_path: Path) -> None:
    files = {
        f"{GROUP}/memory.max": str(4 * GIB),
        f"{GROUP}/memory.current": str(3 * GIB),
        f"{GROUP}/memory.stat": f"anon {GIB}\nfile {2 * GIB}\ninactive_file {GIB}\nactive_file {GIB}",
    }
    assert memory.probe(plain().having(files).at(tmp_path)).available == 3 * GIB


def test_the_fullest_ancestor_decides_what_is_left(tmp_path: Path) -> None:
    files = {
        "/proc/self/cgroup": "0::/a",
        f"{GROUP}/a/memory.max": str(2 * GIB),
        f"{GROUP}/a/memory.current": str(GIB // 2),
        f"{GROUP}/memory.max": str(8 * GIB),
        f"{GROUP}/memory.current": str(7 * GIB + GIB // 2),
    }
    found = memory.probe(plain().having(files).at(tmp_path))
    assert (found.limit, found.available) == (2 * GIB, GIB // 2)


def test_a_group_over_its_limit_has_nothing_left(tmp_path: Path) -> None:
    files = {f"{GROUP}/memory.max": str(GIB), f"{GROUP}/memory.current": str(2 * GIB)}
    assert memory.probe(plain().having(files).at(tmp_path)).available == 0


def test_memory_high_stalls_and_so_limits(tmp_path: Path) -> None:
    files = {f"{GROUP}/memory.max": str(4 * GIB), f"{GROUP}/memory.high": str(3 * GIB)}
    found = memory.probe(plain().having(files).at(tmp_path))
    assert (found.limit, found.limit_source) == (3 * GIB, "cgroup memory.high")


@pytest.mark.parametrize("size", [64 * MIB, None])
def test_shared_memory(tmp_path: Path, size: int | None) -> None:
    spaces = {"/dev/shm": (size, size)} if size else {}
    found = memory.probe(plain().having(spaces=spaces).at(tmp_path))
    assert found.shm_total == size


@pytest.mark.parametrize(("machine", "kills"), [("pod_v2", 3), ("pod_v1", 3), ("laptop", None)])
def test_oom_kills(tmp_path: Path, machine: str, kills: int | None) -> None:
    assert memory.oom_kills(MACHINES[machine]().at(tmp_path)) == kills


def test_without_groups_the_machine_counts_kills(tmp_path: Path) -> None:
    machine = plain().having({"/proc/vmstat": "pgfault 12\noom_kill 7\nswap_ra 0"})
    assert memory.oom_kills(machine.at(tmp_path)) == 7


@given(st.dictionaries(st.from_regex(r"[A-Z][A-Za-z_]{0,12}(\(anon\))?", fullmatch=True), st.integers(0, 1 << 40)))
def test_meminfo_reads_back(sizes: dict[str, int]) -> None:
    text = "\n".join(f"{name}:   {size} kB" for name, size in sizes.items())
    assert memory.parse_meminfo(text) == {name: size * KIB for name, size in sizes.items()}
