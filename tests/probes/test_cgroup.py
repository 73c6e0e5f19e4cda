"""Control groups: where we are, what can be seen of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machines import host

from autotune.probes import cgroup

V2 = "24 30 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"
V1 = "33 32 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu"
UNIFIED = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"
PATHS = st.text(alphabet="abc/.-_", max_size=20).map(lambda text: "/" + text)


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
    found = [group.folder for group in cgroup.ancestors(machine.at(tmp_path), "cpu")]
    assert found == ([f"/sys/fs/cgroup{path}" for path in expected] if expected is not None else [])


def test_mount_points_with_blanks_are_unescaped() -> None:
    mount = cgroup.parse_mounts(r"1 2 0:3 / /mnt/my\040disk rw shared:1 - ext4 /dev/sda1 rw,relatime")[0]
    assert (mount.point, mount.source, mount.options) == ("/mnt/my disk", "/dev/sda1", ("rw", "relatime"))


@given(st.dictionaries(st.sampled_from(["cpu", "memory", "pids", "name=systemd"]), PATHS))
def test_membership_reads_back(groups: dict[str, str]) -> None:
    text = "\n".join(f"{i}:{name}:{path}" for i, (name, path) in enumerate(groups.items()))
    assert cgroup.parse_membership(text) == groups


@given(st.text(max_size=200))
def test_no_text_breaks_the_parsers(text: str) -> None:
    assert isinstance(cgroup.parse_membership(text), dict)
    assert isinstance(cgroup.parse_mounts(text), tuple)
