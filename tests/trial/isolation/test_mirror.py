from __future__ import annotations

import hashlib
import os
import shutil
import stat
from pathlib import Path

import pytest

from autotune.trial.isolation.mirror import MIRROR_DEPTH, MIRROR_ENTRIES, MIRROR_FILE_BYTES, mirror
from autotune.trial.paths import StudyPaths


def digest(folder: Path) -> str:
    """Names, kinds, times and contents of everything below ``folder``."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        info = path.lstat()
        found.update(repr((str(path.relative_to(folder)), stat.S_IFMT(info.st_mode), info.st_mtime_ns)).encode())
        if path.is_file():
            found.update(path.read_bytes())
    return found.hexdigest()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A user's project under an awkward name."""
    folder = tmp_path / 'it\'s "my"\nproject'
    for name in ("data", "out/runs", ".git/objects", "a/b/c/d/e"):
        (folder / name).mkdir(parents=True)
    (folder / "data.csv").write_text("1,2,3")
    (folder / "data" / "train.bin").write_bytes(b"\x00\x01")
    (folder / "out" / "old.txt").write_text("kept")
    (folder / "a" / "b" / "c" / "d" / "deep.txt").write_text("deep")
    (folder / ".git" / "HEAD").write_text("ref")
    (folder / "dangling").symlink_to("nowhere")
    return folder


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "scratch" / "t1"


class TestReading:
    def test_everything_is_there_under_its_relative_name(self, source: Path, target: Path) -> None:
        mirror(source, target)
        assert (target / "data.csv").read_text() == "1,2,3"
        assert (target / "data" / "train.bin").read_bytes() == b"\x00\x01"
        assert (target / "a/b/c/d/deep.txt").read_text() == "deep"
        assert (target / ".git" / "HEAD").read_text() == "ref"
        assert os.readlink(target / "dangling") == str(source / "dangling")
        assert sorted(os.listdir(target)) == sorted(os.listdir(source))

    def test_folders_are_real_files_and_hidden_folders_are_links(self, source: Path, target: Path) -> None:
        mirror(source, target)
        for folder in ("data", "out", "out/runs", "a", "a/b", "a/b/c"):
            assert (target / folder).is_dir()
            assert not (target / folder).is_symlink()
        (source / "large.bin").write_bytes(bytes(MIRROR_FILE_BYTES + 1))
        shutil.rmtree(target)
        mirror(source, target)
        for linked in ("large.bin", ".git"):
            assert (target / linked).is_symlink()

    def test_past_the_depth_folders_are_links(self, source: Path, target: Path) -> None:
        mirror(source, target)
        parts = ["a", "b", "c", "d"]
        assert [(target / "/".join(parts[: n + 1])).is_symlink() for n in range(4)] == [
            depth >= MIRROR_DEPTH for depth in range(4)
        ]

    def test_a_linked_folder_stays_a_link(self, source: Path, target: Path, tmp_path: Path) -> None:
        (tmp_path / "big data").mkdir()
        (source / "elsewhere").symlink_to(tmp_path / "big data")
        mirror(source, target)
        assert (target / "elsewhere").is_symlink()
        assert (target / "elsewhere").resolve() == tmp_path / "big data"

    def test_past_the_number_of_entries_everything_is_still_readable(self, tmp_path: Path, target: Path) -> None:
        source = tmp_path / "many"
        for number in range(MIRROR_ENTRIES + 50):
            (source / f"{number:04}").mkdir(parents=True)
            (source / f"{number:04}" / "label").write_text(str(number))
        mirror(source, target)
        last = f"{MIRROR_ENTRIES + 49:04}"
        assert not (target / "0000").is_symlink()
        assert (target / last).is_symlink()
        assert (target / last / "label").read_text() == str(MIRROR_ENTRIES + 49)

    def test_a_folder_that_may_not_be_read_is_empty(self, source: Path, target: Path) -> None:
        mirror(source / "no such folder", target)
        assert list(target.iterdir()) == []


class TestWriting:
    def test_new_files_land_in_the_scratch(self, source: Path, target: Path) -> None:
        before = digest(source)
        mirror(source, target)
        for name in ("ckpt.pt", "out/new.txt", "out/runs/events", "data/cache.bin"):
            (target / name).write_text("written by a trial")
        (target / "wandb").mkdir()
        (target / "out" / "old.txt").unlink()
        (target / "data.csv").rename(target / "renamed.csv")
        assert digest(source) == before

    @pytest.mark.parametrize("mode", ["w", "a", "r+"])
    def test_existing_files_are_not_overwritten(self, source: Path, target: Path, mode: str) -> None:
        (source / "ckpt.pt").write_text("weights of a week")
        before = digest(source)
        mirror(source, target)
        with (target / "ckpt.pt").open(mode) as file:
            file.write("written by a trial")
        assert digest(source) == before

    def test_what_is_already_in_the_scratch_stays(self, source: Path, target: Path) -> None:
        target.mkdir(parents=True)
        (target / "data.csv").write_text("own")
        mirror(source, target)
        assert (target / "data.csv").read_text() == "own"
        assert (source / "data.csv").read_text() == "1,2,3"


class TestScratchBelowTheSource:
    @pytest.mark.parametrize("scratch", ["autotune-x1", "nested/autotune-x1"])
    def test_is_no_recursion(self, tmp_path: Path, scratch: str) -> None:
        """Working in ``/tmp`` itself: the scratch folder is not mirrored into itself."""
        (tmp_path / "model.py").write_text("x = 1")
        target = tmp_path / scratch / "t1"
        mirror(tmp_path, target)
        assert (target / "model.py").read_text() == "x = 1"
        assert os.listdir(target) == ["model.py"]

    def test_removing_the_scratch_leaves_the_users_files(self, source: Path) -> None:
        paths = StudyPaths(source / "autotune-x1")
        before = digest(source)
        mirror(source, paths.trial(1))
        paths.remove()
        assert {path.name for path in source.iterdir()} >= {"data.csv", "data", "out", ".git"}
        os.utime(source)
        assert digest(source) == before
