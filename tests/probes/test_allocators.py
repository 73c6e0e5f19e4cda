"""What may be preloaded into the user's training: a library in a system folder that only root can change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machines import Machine, host

from autotune.probes import allocators
from autotune.probes.allocators import only_root_can_change
from autotune.probes.files import FileStat
from autotune.probes.system import System

LIB = "/usr/lib/x86_64-linux-gnu"


def libraries(*names: str, **recording: Any) -> Machine:
    return host([(0,), (1,)], cpuinfo="", **recording).having({f"{LIB}/{name}": "" for name in names})


def test_allocators_are_found_by_name(tmp_path: Path) -> None:
    names = ("libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libjemalloc_pic.a", "libtcmalloc_debug.so.4")
    found = {a.name: a.library for a in allocators.probe(libraries(*names).at(tmp_path))}
    assert found == {"jemalloc": f"{LIB}/libjemalloc.so.2", "tcmalloc": f"{LIB}/libtcmalloc_minimal.so.4"}


def test_a_library_elsewhere_is_not_looked_for(tmp_path: Path) -> None:
    system = libraries().having({"/opt/lib/libjemalloc.so.2": "", "/work/libjemalloc.so.2": ""}).at(tmp_path)
    assert allocators.probe(system) == ()


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646])
def test_a_library_that_others_can_write_is_left_out(tmp_path: Path, mode: int) -> None:
    system = libraries("libjemalloc.so.2").at(tmp_path)
    (tmp_path / "root" / LIB[1:] / "libjemalloc.so.2").chmod(mode)
    assert allocators.probe(system) == ()


@pytest.mark.parametrize("folder", [LIB, "/usr/lib", "/usr"])
def test_a_library_below_a_folder_that_others_can_write_is_left_out(tmp_path: Path, folder: str) -> None:
    system = libraries("libjemalloc.so.2").at(tmp_path)
    (tmp_path / "root" / folder[1:]).chmod(0o777)
    assert allocators.probe(system) == ()


@pytest.mark.parametrize("path", [f"{LIB}/libjemalloc.so.2", LIB, "/usr"])
def test_a_library_that_root_does_not_own_is_left_out(tmp_path: Path, path: str) -> None:
    assert allocators.probe(libraries("libjemalloc.so.2", owners={path: 1000}).at(tmp_path)) == ()


def test_a_link_to_a_users_library_is_left_out(tmp_path: Path) -> None:
    system = libraries("libc.so.6", owners={"/home/me/evil.so": 1000}).having({"/home/me/evil.so": ""}).at(tmp_path)
    (tmp_path / "root" / LIB[1:] / "libjemalloc.so.2").symlink_to(tmp_path / "root/home/me/evil.so")
    assert allocators.probe(system) == ()


def test_a_link_to_nothing_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "dangling.so").symlink_to(tmp_path / "missing.so")
    assert not only_root_can_change(System(), str(tmp_path / "dangling.so"))


def test_a_system_file_is_trusted() -> None:
    shell = Path("/bin/sh")
    if any(part.stat().st_uid != 0 for part in (shell.resolve(), *shell.resolve().parents)):
        pytest.skip("system files do not belong to root here")
    assert only_root_can_change(System(), str(shell))


@pytest.mark.parametrize(
    ("mode", "owner", "safe"),
    [
        (0o644, 0, True),
        (0o755, 0, True),
        (0o664, 0, False),
        (0o646, 0, False),
        (0o1777, 0, False),
        (0o644, 1000, False),
    ],
)
def test_who_may_write(mode: int, owner: int, safe: bool) -> None:
    assert FileStat(owner, mode).only_root_writes is safe
