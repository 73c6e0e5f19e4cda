"""Faults while profiles are read and written: nothing is lost, nothing is left behind."""

from __future__ import annotations

import fcntl
import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.core.errors import ProfileError
from autotune.core.match import Here
from autotune.store import atomic, profiles, registry, rescue
from autotune.store.folder import Folder

from .hostile import TEXT
from .records import MACHINE, profile

CUTS = sorted({*range(0, len(TEXT), 29), *range(len(TEXT) - 60, len(TEXT))})


def test_a_profile_cut_short_is_refused_or_has_the_same_settings() -> None:
    whole = profiles.parse(TEXT, "p.yaml")
    for size in CUTS:
        try:
            found = profiles.parse(TEXT[:size], "p.yaml")
        except ProfileError:
            continue
        assert replace(found, evidence=whole.evidence) == whole


def full(*_arguments: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_finished_run_whose_disk_is_full_is_written_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    replaced = atomic.replace

    def full_there(path: Path, text: str, *, private: bool = False) -> None:
        if path.is_relative_to(tmp_path / "full"):
            full()
        replaced(path, text, private=private)

    monkeypatch.setattr(atomic, "replace", full_there)
    place, why = rescue.write(tmp_path / "full" / "own.yaml", profile())
    assert profiles.read(place) == profile()
    assert place.is_relative_to(tmp_path / "data")
    assert "No space left on device" in why
    assert rescue.write(tmp_path / "own.yaml", profile()) == (tmp_path / "own.yaml", "")


def test_without_a_home_it_is_in_the_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rescue, "user_folder", lambda: None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place, why = rescue.write(Path("/proc/none/own.yaml"), profile())
    assert profiles.read(place) == profile()
    assert place.is_relative_to(tmp_path)
    assert "/proc/none" in why


def test_nowhere_at_all_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "replace", full)
    with pytest.raises(ProfileError, match=r"own\.yaml.*No space left"):
        rescue.write(Path("own.yaml"), profile())


def test_a_file_size_limit_keeps_the_old_file_and_leaves_nothing(tmp_path: Path) -> None:
    path = profiles.write(tmp_path / "p.yaml", profile())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(ProfileError, match="File too large"):
            profiles.write(path, profile(recommended="safe"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert profiles.read(path) == profile()
    assert [item.name for item in tmp_path.iterdir()] == ["p.yaml"]


def test_a_lock_that_was_left_behind_costs_no_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic, "LOCK_SECONDS", 0.05)
    holder = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        assert profiles.read(profiles.write(tmp_path / "p.yaml", profile())) == profile()
    finally:
        os.close(holder)


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_arguments: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    assert profiles.read(profiles.write(tmp_path / "p.yaml", profile())) == profile()


def test_paths_that_are_no_text(tmp_path: Path) -> None:
    root = tmp_path / os.fsdecode(b"caf\xe9")
    Folder(root).put(MACHINE.key, "resnet.yaml", TEXT)
    match = registry.search(Here(MACHINE, {}, "resnet"), [root]).match
    assert match is not None
    assert match.profile == profile()
    assert registry.list_profiles([root])[0].profile == profile()


@pytest.mark.parametrize("words", [["profiles", "list"], ["show", "p.yaml"], ["validate", "p.yaml"]])
def test_a_closed_output_is_no_traceback(words: list[str], tmp_path: Path) -> None:
    profiles.write(tmp_path / "p.yaml", profile())
    Folder(tmp_path / "profiles").put(MACHINE.key, "resnet.yaml", TEXT)
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "PYTHONPATH": str(Path(profiles.__file__).parents[2])}
    command = [sys.executable, "-m", "autotune.cli", *words]
    done = subprocess.run(command, cwd=tmp_path, env=environment, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert b"Traceback" not in done.stderr, done.stderr.decode()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_output_is_one_sentence(tmp_path: Path) -> None:
    profiles.write(tmp_path / "p.yaml", profile())
    environment = {**os.environ, "PYTHONPATH": str(Path(profiles.__file__).parents[2])}
    command = [sys.executable, "-m", "autotune.cli", "show", "p.yaml"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, cwd=tmp_path, env=environment, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.stderr.decode() == "autotune: the output cannot be written (No space left on device)\n"
    assert done.returncode == 2


def test_writers_of_one_index_lose_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
        "from autotune.store.folder import Folder\n"
        "for number in range(20): Folder(Path(sys.argv[2])).put(f'amd-{sys.argv[3]}-{number + 1}c-8g', 'x.yaml', 'x')"
    )
    root = str(Path(profiles.__file__).parents[2])
    writers = [subprocess.Popen([sys.executable, "-c", code, root, str(tmp_path), name]) for name in ("a", "b")]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    lines = (tmp_path / "index" / "x.txt").read_text("utf-8").splitlines()
    assert len(lines) == 1 + 40
