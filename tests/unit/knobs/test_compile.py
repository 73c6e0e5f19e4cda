"""What compiling leaves for the training that follows."""

from __future__ import annotations

from pathlib import Path

from autotune.knobs.compile import keep_compiled


def test_what_was_compiled_is_kept_but_for_locks_and_what_cannot_be_kept_costs_nothing(tmp_path: Path) -> None:
    kept, compiled = tmp_path / "kept", tmp_path / "study"
    for name in ("ab/one.so", "locks/ab.lock", "two"):
        (compiled / name).parent.mkdir(parents=True, exist_ok=True)
        (compiled / name).write_text("new")
    kept.mkdir()
    (kept / "two").write_text("old")
    keep_compiled(compiled, kept)
    keep_compiled(compiled, Path("/proc/nowhere"))
    keep_compiled(tmp_path / "nothing was compiled", kept)
    files = {str(path.relative_to(kept)): path.read_text() for path in kept.rglob("*") if path.is_file()}
    assert files == {"ab/one.so": "new", "two": "old"}
