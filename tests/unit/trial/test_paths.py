"""Names of files: scratch folders, shared memory, and sockets of loader workers."""

import os
import stat
from pathlib import Path

import pytest

from autotune.trial import paths
from autotune.trial.child import shm
from autotune.trial.paths import StudyPaths, fits


@pytest.fixture(autouse=True)
def no_short_names_in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "short").mkdir()
    monkeypatch.setattr(paths, "SHORT", tmp_path / "short")


class TestStudyPaths:
    def test_are_private_fresh_and_removed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(paths, "SHORT", tmp_path / "none")
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        first, second = StudyPaths.create(), StudyPaths.create()
        assert first.root != second.root
        assert first.root.parent == tmp_path
        assert first.root.name.startswith("autotune-"), "the fork server removes nothing else"
        assert stat.S_IMODE(first.root.stat().st_mode) == 0o700
        (first.trial(3) / "deep").mkdir(parents=True)
        first.remove()
        assert not first.root.exists()
        assert second.root.exists()


class TestLongTemporaryFolders:
    """A loader's workers meet at a socket in the temporary folder, whose path may have 107 characters."""

    @pytest.fixture
    def long(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A temporary folder in which PyTorch's own loader still works, but a folder deeper it does not."""
        folder = tmp_path / ("x" * (75 - len(str(tmp_path)) - 1))
        folder.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(folder))
        return folder

    def test_a_short_one_is_taken_instead(self, long: Path, tmp_path: Path) -> None:
        assert StudyPaths.create().root.parent == tmp_path / "short"

    def test_where_the_users_own_training_fails_too_nothing_is_mended(self, long, monkeypatch) -> None:
        deeper = long / "deeper"
        deeper.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(deeper))
        assert StudyPaths.create().root.parent == deeper


class TestAbandoned:
    @pytest.fixture
    def dead(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StudyPaths:
        """What a killed run has left: its lock is gone with it."""
        (tmp_path / "shm").mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        monkeypatch.setattr(shm, "FOLDER", tmp_path / "shm")
        monkeypatch.setattr(shm, "SHORT", tmp_path / "short")
        found = StudyPaths.create()
        os.close(found.lock)
        found.trial(1).mkdir()
        return found

    def test_what_a_dead_process_left_is_removed(self, dead: StudyPaths, tmp_path: Path) -> None:
        living = StudyPaths.create()
        living.trial(1).mkdir()
        names = [f"psm_{paths.mark(each.trial(1))}x" for each in (dead, living)]
        for name in (*names, "psm_of_others"):
            (tmp_path / "shm" / name).touch()
        shm.remove_abandoned()
        assert (dead.root.exists(), living.root.exists()) == (False, True)
        assert {each.name for each in (tmp_path / "shm").iterdir()} == {names[1], "psm_of_others"}
        living.remove()

    def test_what_no_run_has_made_and_links_stay(self, dead: StudyPaths, tmp_path: Path) -> None:
        place = dead.root.rename(tmp_path / "elsewhere")
        dead.root.symlink_to(place)
        (tmp_path / "autotune-results").mkdir()
        (tmp_path / "autotune-file").touch()
        before = set(tmp_path.rglob("*"))
        shm.remove_abandoned()
        assert set(tmp_path.rglob("*")) == before

    @pytest.mark.root
    def test_the_folder_of_another_user_stays(self, dead: StudyPaths) -> None:
        try:
            os.chown(dead.root, 65534, 65534)
        except OSError as error:
            pytest.skip(f"cannot give a folder away: {error}")
        shm.remove_abandoned()
        assert dead.root.exists()


@pytest.mark.parametrize(("length", "fit"), [(4, True), (75, True), (76, False)])
def test_a_dataloaders_worker_was_seen_to_start_with_75_characters_and_not_with_76(length: int, fit: bool) -> None:
    assert fits("x" * length) is fit
