from __future__ import annotations

import stat
from pathlib import Path

import pytest

from autotune.trial.paths import StudyPaths


class TestStudyPaths:
    def test_are_private_fresh_and_removed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        first, second = StudyPaths.create(), StudyPaths.create()
        assert first.root != second.root
        assert first.root.parent == tmp_path
        assert first.root.name.startswith("autotune-"), "the zygote removes nothing else"
        assert stat.S_IMODE(first.root.stat().st_mode) == 0o700
        (first.trial(3) / "deep").mkdir(parents=True)
        first.remove()
        assert not first.root.exists()
        assert second.root.exists()

    def test_removing_twice_is_no_error(self, tmp_path: Path) -> None:
        paths = StudyPaths(tmp_path / "autotune-gone")
        paths.remove()
        assert not paths.root.exists()

    def test_names_are_below_the_root_and_distinct(self, tmp_path: Path) -> None:
        paths = StudyPaths(tmp_path)
        names = [paths.trial(1), paths.trial(2), paths.compile_cache]
        assert len(set(names)) == 3
        assert all(name.parent == tmp_path for name in names)
