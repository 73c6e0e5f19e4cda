"""Leftovers in shared memory, in a folder of the test's own wherever nobody has to hold a real one."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.trial import shm


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(shm, "FOLDER", tmp_path)
    return tmp_path


def make(folder: Path, *names: str) -> set[str]:
    for name in names:
        (folder / name).write_bytes(b"\0" * 4096)
    return set(names)


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_only_names_of_torch_and_multiprocessing_are_removed(folder: Path) -> None:
    make(folder, *(f"{prefix}test_1" for prefix in shm.OWN_PREFIXES))
    others = make(folder, "postgres", "nccl-AbC", "my_torch_data", "PSM_upper", "sem.other")
    shm.remove_leftovers(0.0)
    assert left(folder) == others


def test_what_was_there_before_the_trial_stays(folder: Path) -> None:
    make(folder, "torch_old", "torch_new")
    age = (folder / "torch_old").stat().st_ctime
    shm.remove_leftovers(age + 1000.0)
    assert left(folder) == {"torch_old", "torch_new"}
    shm.remove_leftovers(age)
    assert left(folder) == set()


def test_another_users_are_left_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(folder, "torch_1")
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    shm.remove_leftovers(0.0)
    assert left(folder) == {"torch_1"}


def test_what_is_open_is_kept(folder: Path) -> None:
    make(folder, "torch_open", "torch_stale")
    with (folder / "torch_open").open("rb"):
        shm.remove_leftovers(0.0)
        assert left(folder) == {"torch_open"}
    shm.remove_leftovers(0.0)
    assert left(folder) == set()


@pytest.fixture
def mapped(folder: Path) -> Iterator[str]:
    """A file that this process has mapped and closed. (Python's own ``mmap`` would keep a descriptor.)"""
    make(folder, "psm_mapped")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    descriptor = os.open(folder / "psm_mapped", os.O_RDWR)
    address = libc.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    os.close(descriptor)
    assert address not in (None, ctypes.c_void_p(-1).value)
    yield "psm_mapped"
    libc.munmap(address, 4096)


def test_what_is_mapped_is_kept(folder: Path, mapped: str) -> None:
    make(folder, "psm_stale")
    shm.remove_leftovers(0.0)
    assert left(folder) == {mapped}


def test_without_shared_memory_nothing_happens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shm, "FOLDER", tmp_path / "no such folder")
    shm.remove_leftovers(0.0)
    assert left(tmp_path) == set()


def test_a_folder_of_that_name_is_not_removed(folder: Path) -> None:
    (folder / "torch_folder").mkdir()
    shm.remove_leftovers(0.0)
    assert left(folder) == {"torch_folder"}
