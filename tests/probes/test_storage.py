"""What kind of storage lies under a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from machines import GIB, disk, host

from autotune.probes import storage
from autotune.probes.cgroup import parse_mounts

ROOT = "30 1 259:2 / / rw - ext4 /dev/nvme0n1p2 rw"


@pytest.mark.parametrize(
    ("mount", "files", "kind", "filesystem"),
    [
        ("31 30 0:50 / /work rw - nfs4 nas:/export rw", {}, "network", "nfs4"),
        ("31 30 0:50 / /work rw - lustre mds@tcp:/scratch rw", {}, "network", "lustre"),
        ("31 30 0:50 / /work rw - fuse.s3fs s3fs rw", {}, "network", "fuse.s3fs"),
        ("31 30 0:50 / /work rw - tmpfs tmpfs rw", {}, "memory", "tmpfs"),
        ("31 30 0:50 / /work rw - virtiofs share rw", {}, "virtual", "virtiofs"),
        ("31 30 0:50 / /work rw - overlay overlay rw,upperdir=/x", {}, "unknown", "overlay"),
        ("31 30 8:1 / /work rw - xfs /dev/sda1 rw", disk("8:1", "sda1", "sda", "0"), "ssd", "xfs"),
        ("31 30 8:1 / /work rw - xfs /dev/sda1 rw", disk("8:1", "sda1", "sda", "1"), "hdd", "xfs"),
        ("31 30 254:1 / /work rw - ext4 /dev/vda1 rw", disk("254:1", "vda1", "vda", "1"), "virtual", "ext4"),
        (
            "31 30 253:0 / /work rw - ext4 /dev/mapper/home rw",
            {
                "/sys/dev/block/253:0/uevent": "DEVNAME=dm-0",
                "/sys/dev/block/253:0/slaves/nvme1n1/uevent": "DEVNAME=nvme1n1",
            },
            "nvme",
            "ext4",
        ),
        (
            "31 30 0:35 /home /work rw - btrfs /dev/nvme0n1p3 rw",
            {"/sys/class/block/nvme0n1p3/uevent": "DEVNAME=nvme0n1p3"},
            "nvme",
            "btrfs",
        ),
        ("31 30 0:50 / /elsewhere rw - tmpfs tmpfs rw", {}, "unknown", "ext4"),
    ],
)
def test_kinds(tmp_path: Path, mount: str, files: dict[str, str], kind: str, filesystem: str) -> None:
    root = ROOT.replace("/dev/nvme0n1p2", "none")
    machine = host([(0,)], cpuinfo="").having({**files, "/proc/self/mountinfo": f"{root}\n{mount}"})
    found = storage.probe(machine.at(tmp_path))
    assert (found.kind, found.filesystem, found.free) == (kind, filesystem, 200 * GIB)


@pytest.mark.parametrize(
    ("path", "point"), [("/a/b/c", "/a/b"), ("/a/bc", "/a"), ("/a", "/a"), ("/z", "/"), ("/a/b", "/a/b")]
)
def test_the_deepest_mount_holds_a_path(path: str, point: str) -> None:
    lines = [f"1 1 0:{i} / {place} rw - ext4 none rw" for i, place in enumerate(["/", "/a/b", "/a"])]
    mount = storage.mount_of(parse_mounts("\n".join(lines)), path)
    assert mount is not None
    assert mount.point == point


def test_of_two_mounts_on_one_point_the_last_is_seen() -> None:
    mounts = parse_mounts("1 1 0:1 / /a rw - ext4 none rw\n2 1 0:2 / /a rw - tmpfs none rw")
    mount = storage.mount_of(mounts, "/a/x")
    assert mount is not None
    assert mount.filesystem == "tmpfs"
