"""Slow facts are computed once, in a folder that only their user can write to."""

from __future__ import annotations

from pathlib import Path

import pytest
from machines import laptop

from autotune.probes.system import System
from autotune.testing.recorded import Recorded


def test_remember_computes_once_per_key(tmp_path: Path) -> None:
    system = laptop().at(tmp_path)
    system.cache = tmp_path
    answers = iter([{"n": 1}, {"n": 2}])
    assert [system.remember("x", key, lambda: next(answers))["n"] for key in (["a"], ["a"], ["b"])] == [1, 1, 2]


def test_the_lowest_of_all_times_is_kept_by_key(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    system = Recorded(tmp_path, cache=cache)
    assert system.lowest("x", 1, {"a": 3.0}) == {"a": 3.0}
    assert system.lowest("x", 1, {"a": 5.0, "b": 2.0}) == {"a": 3.0, "b": 2.0}
    assert system.lowest("x", 1, {"a": 1.0}) == {"a": 1.0, "b": 2.0}
    assert system.lowest("x", 2, {"a": 9.0}) == {"a": 9.0}
    assert Recorded(tmp_path).lowest("x", 1, {"a": 9.0}) == {"a": 9.0}, "without a cache"


@pytest.mark.parametrize("text", ["", "[]", "{", "\x00"])
def test_a_damaged_cache_is_computed_again(tmp_path: Path, text: str) -> None:
    system = laptop().at(tmp_path)
    system.cache = tmp_path
    system.remember("x", 1, lambda: {"n": 1})
    (entry,) = tmp_path.glob("x-*.json")
    entry.write_text(text, encoding="utf-8")
    assert system.remember("x", 1, lambda: {"n": 2}) == {"n": 2}


def test_old_entries_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.probes.fact_cache.CACHE_ENTRIES", 3)
    system = laptop().at(tmp_path)
    system.cache = tmp_path
    for key in range(6):
        system.remember("x", key, lambda: {"n": 1})
    assert len(list(tmp_path.glob("x-*.json"))) == 3


def test_without_a_cache_folder_facts_are_computed(tmp_path: Path) -> None:
    assert laptop().at(tmp_path).remember("x", 1, lambda: {"n": 1}) == {"n": 1}


def test_the_cache_falls_back_to_a_private_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "file"))  # a home that holds no folders
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    folder = System().cache_folder()
    assert folder is not None
    assert folder.parent == tmp_path / "tmp"
    assert folder.stat().st_mode & 0o077 == 0
    folder.chmod(0o777)  # somebody else's to fill: not trusted
    assert System().cache_folder() is None
