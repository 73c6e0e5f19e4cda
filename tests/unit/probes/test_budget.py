"""The CPU budget: which of mask, cpuset, quota and online CPUs decides; control groups; most processes."""

from pathlib import Path
from typing import Any

import pytest

from autotune.probes import budget, cpu
from autotune.probes.facts import CpuBudget
from tests.doubles.machines import Machine, amd_cpuinfo, host

GROUP = "/sys/fs/cgroup"
V1_CPU = {
    "/proc/self/cgroup": "4:memory:/elsewhere\n3:cpu,cpuacct:/here",
    "/proc/self/mountinfo": f"33 32 0:29 / {GROUP}/cpu rw - cgroup cgroup rw,cpu,cpuacct",
    f"{GROUP}/cpu/here/cpu.cfs_period_us": "100000",
    f"{GROUP}/cpu/elsewhere/cpu.cfs_quota_us": "100000",
    f"{GROUP}/cpu/elsewhere/cpu.cfs_period_us": "100000",
}
NESTED = {
    "/proc/self/cgroup": "0::/a/b/c",
    f"{GROUP}/a/b/c/cpu.max": "800000 100000",
    f"{GROUP}/a/b/cpu.max": "300000 100000",
    f"{GROUP}/a/cpu.max": "max 100000",
}


def probe(machine: Machine, folder: Path) -> CpuBudget:
    system = machine.at(folder)
    return budget.probe(system, cpu.probe(system))


@pytest.mark.parametrize(
    ("files", "threads", "quota"),
    [
        ({f"{GROUP}/cpu.max": "150000 100000"}, 1, 1.5),
        ({f"{GROUP}/cpu.max": "50000 100000"}, 1, 0.5),
        ({f"{GROUP}/cpu.max": "400000 100000"}, 4, 4.0),
        ({f"{GROUP}/cpu.max": "max 100000"}, 64, None),
        ({f"{GROUP}/cpu.max": "max"}, 64, None),
        ({**V1_CPU, f"{GROUP}/cpu/here/cpu.cfs_quota_us": "-1"}, 64, None),
        ({**V1_CPU, f"{GROUP}/cpu/here/cpu.cfs_quota_us": "200000"}, 2, 2.0),
        (NESTED, 3, 3.0),  # the tightest of all ancestors
    ],
)
def test_quotas(tmp_path: Path, files: dict[str, str], threads: int, quota: float | None) -> None:
    machine = host([(i,) for i in range(64)], cpuinfo=amd_cpuinfo(64, 25, 1, "AMD EPYC")).having(files)
    found = probe(machine, tmp_path)
    assert (found.threads, found.quota) == (threads, quota)


ALONE = [(cpu,) for cpu in range(64)]
PAIRS = [(0, 4), (1, 5), (2, 6), (3, 7)]
APART = {f"{GROUP}/cpuset.cpus.effective": "4-5,20-21"}


@pytest.mark.parametrize(
    ("siblings", "mask", "files", "cores", "limit"),
    [
        (ALONE, (4, 5, 20, 21), {}, 4, "affinity mask (4 of 64 CPUs)"),
        (ALONE, (4, 5, 20, 21), {f"{GROUP}/cpuset.cpus.effective": "0-63"}, 4, "affinity mask (4 of 64 CPUs)"),
        (ALONE, (4, 5, 20, 21), APART, 4, "cpuset (4 of 64 CPUs)"),  # the kernel keeps the mask in it
        (PAIRS, tuple(range(8)), {}, 4, "8 online CPUs"),
        ([(0, 1), (2, 3)], (0, 1, 2, 3), {}, 2, "4 online CPUs"),
        (PAIRS, (4, 5, 6, 7), {}, 4, "affinity mask (4 of 8 CPUs)"),  # second siblings only: still a core each
        (PAIRS, (0, 4), {}, 1, "affinity mask (2 of 8 CPUs)"),
    ],
)
def test_a_mask_keeps_its_ids_and_smt_siblings_are_counted_both_ways(
    tmp_path: Path, siblings: list[Any], mask: tuple[int, ...], files: dict[str, str], cores: int, limit: str
) -> None:
    found = probe(host(siblings, cpuinfo="", affinity=mask).having(files), tmp_path)
    assert (found.cpus, found.threads, found.cores, found.limit) == (mask, len(mask), cores, limit)


@pytest.mark.parametrize(
    ("files", "own", "expected"),
    [
        ({}, 100, (100, "RLIMIT_NPROC")),
        ({f"{GROUP}/pids.max": "64"}, 100, (64, "cgroup pids.max")),
        ({f"{GROUP}/pids.max": "max"}, None, (None, "unlimited")),
    ],
)
def test_the_tighter_limit_of_processes_counts(tmp_path: Path, files, own, expected) -> None:
    found = budget.resource_limits(host([(0,)], cpuinfo="", process_limit=own).having(files).at(tmp_path))
    assert (found.processes, found.processes_source) == expected


V2 = "24 30 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"
V1 = "33 32 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu"
UNIFIED = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"


@pytest.mark.parametrize(
    ("membership", "mounts", "present", "expected"),
    [
        ("0::/a/b", V2, ["/a/b"], ["/a/b", "/a", ""]),
        ("0::/a/b", V2, [], [""]),  # the path is the host's: the root of the mount is ours
        ("0::/../../x", V2, ["/x"], [""]),  # outside the namespace
        ("0::/pod/c", V2.replace(" / /sys", " /pod /sys"), ["/c"], ["/c", ""]),
        ("0::/pod", V2.replace(" / /sys", " /pod /sys"), [], [""]),
        ("0::/podium", V2.replace(" / /sys", " /pod /sys"), [], [""]),
        ("3:cpuset:/z\n1:cpu:/a\n0::/", f"{V1}\n{UNIFIED}", ["/cpu/a"], ["/cpu/a", "/cpu"]),
        ("2:memory:/m\n0::/a", f"{V1}\n{UNIFIED}", ["/unified/a"], ["/unified/a", "/unified"]),  # hybrid, cpu on v2
        ("1:cpu:/a\n0::/", UNIFIED, [], ["/unified"]),  # v1 is not mounted here
        (  # of two mounts, the one whose root holds the path shows it
            "0::/pod/c",
            f"{V2.replace(' / /sys/fs/cgroup ', ' /other /sys/fs/cgroup/o ')}\n{V2.replace(' / /sys', ' /pod /sys')}",
            ["/c"],
            ["/c", ""],
        ),
        ("", V2, [], []),
        ("0::/", "", [], []),
        ("nonsense", "nonsense", [], []),
    ],
)
def test_ancestors(tmp_path: Path, membership: str, mounts: str, present: list[str], expected: list[str]) -> None:
    files = {"/proc/self/cgroup": membership, "/proc/self/mountinfo": mounts}
    files |= {f"/sys/fs/cgroup{path}/cgroup.procs": "1" for path in present}
    system = host([(0,)], cpuinfo="").having(files).at(tmp_path)
    assert [group.folder for group in budget.ancestors(system, "cpu")] == [f"/sys/fs/cgroup{path}" for path in expected]
