"""Names of files: scratch folders, shared memory, and sockets of loader workers."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from autotune.trial import paths
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
        dead, living = StudyPaths.create(), StudyPaths.create()
        assert dead.root.parent == living.root.parent == tmp_path / "short"
        assert dead.owner is not None
        dead.owner.close()
        paths.remove_abandoned()
        assert list((tmp_path / "short").iterdir()) == [living.root]

    def test_where_the_users_own_training_fails_too_nothing_is_mended(
        self, long: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        deeper = long / "deeper"
        deeper.mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(deeper))
        assert StudyPaths.create().root.parent == deeper


def test_mpich_names_its_shared_memory_by_a_hash_of_the_jobs_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """As MPICH 5 was seen to do it."""
    monkeypatch.setattr(paths, "mark", lambda *_: "autotune-1")
    assert paths.mpi_segments(Path("x"), Path("y"))[0] == "mpich_shm_912fa092_0"


class TestAbandoned:
    @pytest.fixture(autouse=True)
    def elsewhere(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "shm").mkdir()
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        monkeypatch.setattr(paths, "SHARED_MEMORY", tmp_path / "shm")

    def test_what_a_dead_process_left_is_removed(self, tmp_path: Path) -> None:
        dead, living = StudyPaths.create(), StudyPaths.create()
        assert dead.owner is not None
        dead.owner.close()  # as the kernel does where a process ends
        (dead.trial(1) / "deep").mkdir(parents=True)
        names = [f"{kind}{paths.mark(each.root)}t1.x" for each in (dead, living) for kind in ("psm_", "sem.mp-")]
        names += [name for each in (dead, living) for name in paths.mpi_segments(each.root, each.trial(1))]
        for name in (*names, "psm_of_others", "mpich_shm_633f6ec_0"):
            (tmp_path / "shm" / name).touch()
        paths.remove_abandoned()
        assert not dead.root.exists()
        assert living.root.exists()
        kept = {*names[2:4], *names[6:], "psm_of_others", "mpich_shm_633f6ec_0"}
        assert {each.name for each in (tmp_path / "shm").iterdir()} == kept

    @pytest.mark.parametrize("planted", ["folder", "owner"])
    def test_links_are_not_followed(self, tmp_path: Path, planted: str) -> None:
        dead = StudyPaths.create()
        assert dead.owner is not None
        dead.owner.close()
        place = dead.root.rename(tmp_path / "elsewhere")
        if planted == "folder":
            dead.root.symlink_to(place)
        else:
            dead.root.mkdir()
            (dead.root / paths.OWNER).symlink_to(place / paths.OWNER)
        paths.remove_abandoned()
        assert (place / paths.OWNER).exists()
        assert dead.root.exists()

    @pytest.mark.root
    def test_the_folder_of_another_user_stays(self) -> None:
        dead = StudyPaths.create()
        assert dead.owner is not None
        dead.owner.close()
        try:
            os.chown(dead.root, 65534, 65534)
        except OSError as error:
            pytest.skip(f"cannot give a folder away: {error}")
        paths.remove_abandoned()
        assert dead.root.exists()


@pytest.mark.parametrize(("length", "fit"), [(4, True), (75, True), (76, False)])
def test_a_dataloaders_worker_was_seen_to_start_with_75_characters_and_not_with_76(length: int, fit: bool) -> None:
    assert fits("x" * length) is fit
