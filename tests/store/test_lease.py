"""Who tunes first, and what that leaves behind."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from autotune.store.lease import FileLock, lease


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AUTOTUNE_PROFILES", raising=False)


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    with lease("key", "train", lambda _target: pytest.fail("nobody holds it")):
        assert list(tmp_path.rglob("*.tuning"))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_a_profile_stays(tmp_path: Path) -> None:
    with lease("key", "train", lambda _target: None):
        (tmp_path / "profiles" / "key" / "train.yaml").touch()
    assert [path.name for path in tmp_path.rglob("*.*")] == ["train.yaml"]


def test_a_folder_that_the_one_before_removes_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    acquire, removed = FileLock.acquire, []

    def after_removal(lock: FileLock, timeout: float) -> object:
        if not removed:
            removed.append((tmp_path / "profiles" / "key").rmdir())
        return acquire(lock, timeout)

    monkeypatch.setattr(FileLock, "acquire", after_removal)
    with lease("key", "train", lambda _target: pytest.fail("nobody holds it")):
        assert list(tmp_path.rglob("*.tuning"))
    assert removed


@pytest.mark.parametrize("error", [FileExistsError, FileNotFoundError])
def test_a_folder_that_vanishes_while_it_is_made(error: type[OSError], monkeypatch: pytest.MonkeyPatch) -> None:
    make, failures = Path.mkdir, [error(), error()]

    def vanishing(path: Path, *words: int, **options: bool) -> None:
        if failures:
            raise failures.pop()
        make(path, *words, **options)

    monkeypatch.setattr(Path, "mkdir", vanishing)
    with lease("key", "train", lambda _target: pytest.fail("nobody holds it")):
        assert failures == []


def test_a_place_that_is_no_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "profiles").touch()
    with pytest.raises(OSError), lease("key", "train", lambda _target: pytest.fail("nobody holds it")):
        pytest.fail("there is no lease")


def test_a_second_one_waits(tmp_path: Path) -> None:
    waiting, second = threading.Event(), threading.Event()

    def later() -> None:
        with lease("key", "train", lambda _target: waiting.set()):
            second.set()

    other = threading.Thread(target=later)
    with lease("key", "train", lambda _target: None):
        other.start()
        assert waiting.wait(30)
        assert not second.is_set()
    other.join(30)
    assert second.is_set()
    assert list(tmp_path.iterdir()) == []
