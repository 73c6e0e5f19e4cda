"""What may be preloaded into the user's training: a known library that only root can change, found here."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.launch import allocators
from autotune.launch.allocators import Preload, find, preload, trusted
from probes.facts import Allocator

from .records import inventory


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with both libraries, taken for a system folder."""
    monkeypatch.setattr(allocators, "_only_root_writes", lambda _found: True)
    for name in ("libjemalloc.so.2", "libtcmalloc_minimal.so.4"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(("name", "file"), [("jemalloc", "libjemalloc.so.2"), ("tcmalloc", "libtcmalloc_minimal.so.4")])
def test_a_library_is_found_by_its_word(folder: Path, name: str, file: str) -> None:
    assert find(name, inventory(), (folder / "none", folder)) == (folder / file, "")


@pytest.mark.parametrize(
    ("name", "present", "result"),
    [
        ("default", "", Preload()),
        ("default", "/opt/libjemalloc.so", Preload(yours="/opt/libjemalloc.so")),
        ("jemalloc", "", "libjemalloc.so.2"),
        ("jemalloc", "/opt/libmine.so", "/opt/libmine.so:libjemalloc.so.2"),
        ("jemalloc", "/opt/libjemalloc.so", Preload()),
        ("jemalloc", "/opt/libtcmalloc.so", Preload(yours="/opt/libtcmalloc.so")),
    ],
)
def test_what_is_preloaded_already_stays(folder: Path, name: str, present: str, result: Preload | str) -> None:
    if isinstance(result, str):
        result = Preload(value=result.replace("libjemalloc.so.2", f"{folder}/libjemalloc.so.2"))
    assert preload(name, inventory(), present, (folder,)) == result


@pytest.mark.parametrize(
    "library",
    ["/tmp/libjemalloc.so", "../libjemalloc.so.2", "libevil.so", "libjemalloc.so.2:/tmp/x.so", "libtcmalloc.so.4", ""],
)
def test_a_path_or_another_library_is_refused(folder: Path, library: str) -> None:
    here = inventory()
    here = replace(here, software=replace(here.software, allocators=(Allocator("jemalloc", library),)))
    path, reason = find("jemalloc", here, (folder,))
    assert path is None
    assert reason == f"{library!r} is not the name of a jemalloc library"


def test_macos_has_no_preload(folder: Path) -> None:
    here = inventory()
    here = replace(here, software=replace(here.software, platform="darwin"))
    assert preload("jemalloc", here, "", (folder,)) == Preload(reason="jemalloc is preloaded on Linux only")


def test_a_library_in_a_users_folder_is_not_trusted(tmp_path: Path) -> None:
    """The folders above a temporary one can be written by everybody."""
    library = tmp_path / "libjemalloc.so.2"
    library.touch(0o644)
    tmp_path.chmod(0o777)
    assert not trusted(library)
    path, reason = find("jemalloc", inventory(), (tmp_path,))
    assert path is None
    assert reason == f"{library} could be changed by users other than root"


def test_a_link_to_a_users_file_is_not_trusted(tmp_path: Path) -> None:
    target = tmp_path / "mine.so"
    target.touch()
    tmp_path.chmod(0o777)
    (tmp_path / "link.so").symlink_to(target)
    assert not trusted(tmp_path / "link.so")
    assert not trusted(tmp_path / "dangling.so")


def test_a_system_file_is_trusted() -> None:
    shell = Path("/bin/sh")
    if any(part.stat().st_uid != 0 for part in (shell.resolve(), *shell.resolve().parents)):
        pytest.skip("system files do not belong to root here")
    assert trusted(shell)


@pytest.mark.parametrize(
    ("mode", "uid", "gid", "safe"),
    [
        (0o644, 0, 0, True),
        (0o755, 0, 5, True),
        (0o664, 0, 0, True),
        (0o664, 0, 5, False),
        (0o646, 0, 0, False),
        (0o1777, 0, 0, False),
        (0o644, 1000, 0, False),
    ],
)
def test_who_may_write(mode: int, uid: int, gid: int, safe: bool) -> None:
    found = os.stat_result((stat.S_IFREG | mode, 1, 1, 1, uid, gid, 0, 0, 0, 0))
    assert allocators._only_root_writes(found) is safe
