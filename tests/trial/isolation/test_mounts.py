"""Which mounts a trial covers, read off the text that the kernel gives."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autotune.trial.isolation.private import Treatment, below, parse

TEXT = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
24 27 0:6 / /dev rw,relatime - devtmpfs devtmpfs rw,size=12358268k
25 24 0:23 / /dev/shm rw,relatime - tmpfs tmpfs rw
26 24 0:23 / /dev/shm ro,relatime - tmpfs tmpfs rw
27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard
30 27 0:40 / /mnt/my\\040data rw,relatime shared:3 - nfs4 server:/data rw,vers=4.2
31 27 0:41 / /mnt/archive rw,relatime - squashfs /dev/loop0 ro
32 27 0:42 / /run rw,nosuid - tmpfs tmpfs rw
33 32 0:43 / /run/user/1000 rw,nosuid - tmpfs tmpfs rw
"""


def test_the_kernels_text_is_read() -> None:
    assert {(point, mount.kind) for point, mount in parse(TEXT).items()} >= {("/mnt/my data", "nfs4"), ("/", "ext4")}


def test_of_mounts_at_one_point_the_last_is_seen() -> None:
    assert not parse(TEXT)["/dev/shm"].writable


@pytest.mark.parametrize(
    ("point", "treatment"),
    [
        ("/", Treatment.PRIVATE),
        ("/mnt/my data", Treatment.PRIVATE),
        ("/mnt/archive", Treatment.READ_ONLY),
        ("/run", Treatment.READ_ONLY),
        ("/run/user/1000", Treatment.READ_ONLY),
        ("/proc", Treatment.REAL),
        ("/dev", Treatment.REAL),
        ("/dev/shm", Treatment.SHARED_MEMORY),
    ],
)
def test_what_happens_to_each_mount(point: str, treatment: Treatment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "isdir", lambda _: True)
    assert parse(TEXT)[point].treatment is treatment


def test_a_file_that_is_mounted_can_only_be_read(tmp_path: Path) -> None:
    (tmp_path / "hosts").touch()
    (mount,) = parse(f"40 27 0:50 / {tmp_path}/hosts rw - ext4 /dev/vda rw").values()
    assert mount.treatment is Treatment.READ_ONLY


@pytest.mark.parametrize(
    ("path", "folders", "inside"),
    [("/a/b", ("/a",), True), ("/a", ("/a",), True), ("/ab", ("/a",), False), ("/a", ("/",), True), ("/a", (), False)],
)
def test_a_path_is_below_a_folder(path: str, folders: tuple[str, ...], inside: bool) -> None:
    assert below(path, folders) is inside
