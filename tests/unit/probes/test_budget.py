"""The CPU budget: which of mask, cpuset, quota and online CPUs decides; open files and processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.probes import budget, cpu
from autotune.probes.facts import CpuBudget
from tests.doubles.machines import MACHINES, Machine, amd_cpuinfo, host

GROUP = "/sys/fs/cgroup"


def plain(count: int = 64) -> Machine:
    return host([(i,) for i in range(count)], cpuinfo=amd_cpuinfo(count, 25, 1, "AMD EPYC"))


def probe(machine: Machine, folder: Path) -> CpuBudget:
    system = machine.at(folder)
    return budget.probe(system, cpu.probe(system))


@pytest.mark.parametrize(
    ("machine", "threads", "quota", "limit"),
    [
        ("laptop", 20, None, "20 online CPUs"),
        ("server", 128, None, "128 online CPUs"),
        ("pod_v2", 2, 2.0, "cgroup CPU quota 2"),  # the quota sits on the parent
        ("pod_v1", 1, 1.5, "cgroup CPU quota 1.5"),
        ("slurm_step", 1, None, "affinity mask (1 of 64 CPUs)"),
        ("arm_server", 64, None, "64 online CPUs"),
    ],
)
def test_recorded_machines(tmp_path: Path, machine: str, threads: int, quota: float | None, limit: str) -> None:
    found = probe(MACHINES[machine](), tmp_path)
    assert (found.threads, found.quota, found.limit) == (threads, quota, limit)


@pytest.mark.parametrize(
    ("text", "threads", "quota"),
    [
        ("150000 100000", 1, 1.5),
        ("50000 100000", 1, 0.5),
        ("400000 100000", 4, 4.0),
        ("6400000 100000", 64, 64.0),
        ("max 100000", 64, None),
        ("max", 64, None),
    ],
)
def test_version_2_quotas(tmp_path: Path, text: str, threads: int, quota: float | None) -> None:
    found = probe(plain().having({f"{GROUP}/cpu.max": text}), tmp_path)
    assert (found.threads, found.quota) == (threads, quota)


@pytest.mark.parametrize(("quota", "period", "threads"), [("-1", "100000", 64), ("200000", "100000", 2)])
def test_version_1_quotas(tmp_path: Path, quota: str, period: str, threads: int) -> None:
    files = {
        "/proc/self/cgroup": "4:memory:/elsewhere\n3:cpu,cpuacct:/here",
        "/proc/self/mountinfo": f"33 32 0:29 / {GROUP}/cpu rw - cgroup cgroup rw,cpu,cpuacct",
        f"{GROUP}/cpu/here/cpu.cfs_quota_us": quota,
        f"{GROUP}/cpu/here/cpu.cfs_period_us": period,
        f"{GROUP}/cpu/elsewhere/cpu.cfs_quota_us": "100000",
        f"{GROUP}/cpu/elsewhere/cpu.cfs_period_us": "100000",
    }
    assert probe(plain().having(files), tmp_path).threads == threads


def test_the_tightest_of_all_ancestors_wins(tmp_path: Path) -> None:
    files = {
        "/proc/self/cgroup": "0::/a/b/c",
        f"{GROUP}/a/b/c/cpu.max": "800000 100000",
        f"{GROUP}/a/b/cpu.max": "300000 100000",
        f"{GROUP}/a/cpu.max": "max 100000",
    }
    assert probe(plain().having(files), tmp_path).quota == 3.0


def test_the_mask_keeps_its_ids(tmp_path: Path) -> None:
    found = probe(plain().having(affinity=(4, 5, 20, 21)), tmp_path)
    assert (found.cpus, found.threads, found.limit) == ((4, 5, 20, 21), 4, "affinity mask (4 of 64 CPUs)")


def test_a_cpuset_is_named_before_the_mask_it_narrows(tmp_path: Path) -> None:
    machine = plain().having({f"{GROUP}/cpuset.cpus.effective": "8-11"}, affinity=(8, 9, 10, 11))
    assert probe(machine, tmp_path).limit == "cpuset (4 of 64 CPUs)"


@pytest.mark.parametrize(
    ("siblings", "mask", "cores"),
    [
        ([(0, 4), (1, 5), (2, 6), (3, 7)], tuple(range(8)), 4),
        ([(0, 1), (2, 3)], (0, 1, 2, 3), 2),
        ([(0, 4), (1, 5), (2, 6), (3, 7)], (4, 5, 6, 7), 4),  # second siblings only: still a core each
        ([(0, 4), (1, 5), (2, 6), (3, 7)], (0, 4), 1),
    ],
)
def test_smt_siblings_are_counted_both_ways(
    tmp_path: Path, siblings: list[tuple[int, ...]], mask: tuple[int, ...], cores: int
) -> None:
    found = probe(host(siblings, cpuinfo="", affinity=mask), tmp_path)
    assert (found.threads, found.cores) == (len(mask), cores)


@pytest.mark.parametrize(
    ("machine", "processes", "source"),
    [("laptop", None, "unlimited"), ("pod_v2", 1024, "cgroup pids.max"), ("pod_v1", 512, "cgroup pids.max")],
)
def test_limits_of_recorded_machines(tmp_path: Path, machine: str, processes: int | None, source: str) -> None:
    found = budget.resource_limits(MACHINES[machine]().at(tmp_path))
    assert (found.processes, found.processes_source) == (processes, source)


@pytest.mark.parametrize(("uid", "processes"), [(1000, 100), (0, None)])
def test_rlimit_nproc_does_not_bind_root(tmp_path: Path, uid: int, processes: int | None) -> None:
    machine = host([(0,)], cpuinfo="", uid=uid, rlimits={"RLIMIT_NPROC": (100, 200)})
    assert budget.resource_limits(machine.at(tmp_path)).processes == processes


# Control groups -------------------------------------------------------------------------------------------------------

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
        ("", V2, [], None),
        ("0::/", "", [], None),
        ("nonsense", "nonsense", [], None),
    ],
)
def test_ancestors(
    tmp_path: Path, membership: str, mounts: str, present: list[str], expected: list[str] | None
) -> None:
    files = {f"/sys/fs/cgroup{path}/cgroup.procs": "1" for path in present}
    machine = host([(0,)], cpuinfo="").having(
        {**files, "/proc/self/cgroup": membership, "/proc/self/mountinfo": mounts}
    )
    found = [group.folder for group in budget.ancestors(machine.at(tmp_path), "cpu")]
    assert found == ([f"/sys/fs/cgroup{path}" for path in expected] if expected is not None else [])


def test_mount_points_with_blanks_are_unescaped() -> None:
    mount = budget.parse_mounts(r"1 2 0:3 / /mnt/my\040disk rw shared:1 - ext4 /dev/sda1 rw,relatime")[0]
    assert (mount.point, mount.options) == ("/mnt/my disk", ("rw", "relatime"))
