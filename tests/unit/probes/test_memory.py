"""Host memory: limits, what is left, shared memory, kills."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.probes import memory
from tests.doubles.machines import GIB, KIB, MIB, V1_UNLIMITED, Machine, host

GROUP = "/sys/fs/cgroup"


def plain() -> Machine:
    return host([(0,)], cpuinfo="", memory=64 * GIB)


@pytest.mark.parametrize(
    ("text", "limit"),
    [("2147483648", 2 * GIB), ("max", 64 * GIB), (str(128 * GIB), 64 * GIB), (V1_UNLIMITED, 64 * GIB), ("?", 64 * GIB)],
)
def test_limits_never_exceed_the_machine(tmp_path: Path, text: str, limit: int) -> None:
    assert memory.probe(plain().having({f"{GROUP}/memory.max": text}).at(tmp_path)).limit == limit


FILE_CACHE = f"anon {GIB}\nfile {2 * GIB}\ninactive_file {GIB}\nactive_file {GIB}"
FULL_PARENT = {
    "/proc/self/cgroup": "0::/a",
    f"{GROUP}/a/memory.max": str(2 * GIB),
    f"{GROUP}/a/memory.current": str(GIB // 2),
    f"{GROUP}/memory.max": str(8 * GIB),
    f"{GROUP}/memory.current": str(7 * GIB + GIB // 2),
}


@pytest.mark.parametrize(
    ("most", "used", "files", "limit", "available"),
    [
        (4 * GIB, 3 * GIB, {f"{GROUP}/memory.stat": FILE_CACHE}, 4 * GIB, 3 * GIB),  # the cache counts as free
        (GIB, 2 * GIB, {}, GIB, 0),
        (4 * GIB, 0, {f"{GROUP}/memory.high": str(3 * GIB)}, 3 * GIB, 3 * GIB),  # above it, programs stall
        (8 * GIB, 0, FULL_PARENT, 2 * GIB, GIB // 2),  # the fullest ancestor decides what is left
    ],
)
def test_what_is_left(tmp_path: Path, most: int, used: int, files: dict[str, str], limit: int, available: int) -> None:
    own = {f"{GROUP}/memory.max": str(most), f"{GROUP}/memory.current": str(used)}
    found = memory.probe(plain().having({**own, **files}).at(tmp_path))
    assert (found.limit, found.available) == (limit, available)


@pytest.mark.parametrize("size", [64 * MIB, None])
def test_shared_memory(tmp_path: Path, size: int | None) -> None:
    spaces = {"/dev/shm": (size, size)} if size else {}
    found = memory.probe(plain().having(spaces=spaces).at(tmp_path))
    assert found.shm_total == size


def test_without_groups_the_machine_counts_kills(tmp_path: Path) -> None:
    machine = plain().having({"/proc/vmstat": "pgfault 12\noom_kill 7\nswap_ra 0"})
    assert memory.oom_kills(machine.at(tmp_path)) == 7


@given(st.dictionaries(st.from_regex(r"[A-Z][A-Za-z_]{0,12}(\(anon\))?", fullmatch=True), st.integers(0, 1 << 40)))
def test_meminfo_reads_back(sizes: dict[str, int]) -> None:
    text = "\n".join(f"{name}:   {size} kB" for name, size in sizes.items())
    assert memory.parse_meminfo(text) == {name: size * KIB for name, size in sizes.items()}
