"""What a run takes over from earlier ones, and keeps for the training that follows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.knobs.settings import Settings
from autotune.profiles import file as profiles
from autotune.profiles.format import machine_type
from autotune.profiles.places import default_path
from autotune.trial.target import TaskFile
from autotune.tuning import earlier
from autotune.tuning.earlier import Earlier, earlier_profile, keep_compiled
from benchmarks.simulation.profiles import profile
from benchmarks.simulation.simulator import inventory

MACHINE = inventory(4, 4)
OWN, FASTER, LARGER = Settings(batch_size=32), Settings(batch_size=32, threads=2), Settings(batch_size=64)


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TaskFile:
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.chdir(tmp_path)
    return TaskFile(tmp_path / "train.py", ())


def put(threads: int) -> None:
    """A profile of this machine, for so many threads."""
    machine = machine_type(MACHINE)
    made = profile(OWN, {"safe": Settings(batch_size=32, threads=threads), "max": LARGER}, machine)
    profiles.write(default_path(machine.key, "train"), replace(made, software=made.software))


def test_without_one_there_is_nothing(target: TaskFile) -> None:
    assert earlier_profile(target, MACHINE) == Earlier()


def test_each_level_gets_what_it_allows(target: TaskFile) -> None:
    put(threads=1)
    found = earlier_profile(target, MACHINE)
    assert {settings.batch_size for settings in found.settings["safe"]} == {32}
    assert {settings.batch_size for settings in found.settings["max"]} == {32, 64}
    assert "the search began with the settings of an earlier profile" in found.notes[0]


def test_settings_are_clamped_to_this_machine(target: TaskFile) -> None:
    put(threads=4096)
    threads = MACHINE.budget.threads
    assert all(s.threads <= threads for s in earlier_profile(target, MACHINE).settings["safe"])


def test_what_was_compiled_is_kept_but_for_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, compiled = tmp_path / "kept", tmp_path / "study"
    monkeypatch.setattr(earlier, "compile_cache", lambda: kept)
    for name in ("ab/one.so", "locks/ab.lock", "two"):
        (compiled / name).parent.mkdir(parents=True, exist_ok=True)
        (compiled / name).write_text("new")
    kept.mkdir()
    (kept / "two").write_text("old")
    keep_compiled(compiled)
    files = {str(path.relative_to(kept)): path.read_text() for path in kept.rglob("*") if path.is_file()}
    assert files == {"ab/one.so": "new", "two": "old"}


@pytest.mark.parametrize("place", [None, Path("/proc/nowhere")])
def test_a_folder_that_cannot_be_written_costs_nothing(
    place: Path | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(earlier, "compile_cache", lambda: place)
    (tmp_path / "one").write_text("new")
    keep_compiled(tmp_path)
