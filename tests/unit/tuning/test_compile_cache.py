"""What trials have compiled is kept for the training that follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.tuning import host_compile_cache as compile_cache


def test_what_was_compiled_is_kept_but_for_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, compiled = tmp_path / "kept", tmp_path / "study"
    monkeypatch.setattr(compile_cache, "folder", lambda: kept)
    for name in ("ab/one.so", "locks/ab.lock", "two"):
        (compiled / name).parent.mkdir(parents=True, exist_ok=True)
        (compiled / name).write_text("new")
    kept.mkdir()
    (kept / "two").write_text("old")
    compile_cache.keep(compiled)
    files = {str(path.relative_to(kept)): path.read_text() for path in kept.rglob("*") if path.is_file()}
    assert files == {"ab/one.so": "new", "two": "old"}


@pytest.mark.parametrize("place", [None, Path("/proc/nowhere")])
def test_a_folder_that_cannot_be_written_costs_nothing(
    place: Path | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_cache, "folder", lambda: place)
    (tmp_path / "one").write_text("new")
    compile_cache.keep(tmp_path)
