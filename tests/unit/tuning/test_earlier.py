"""With what an earlier profile offers, a new search begins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.knobs.settings import Settings
from autotune.probes.inventory import probe
from autotune.profiles import file as profiles
from autotune.profiles.format import machine_type
from autotune.profiles.places import default_path
from autotune.trial.task_file import TaskFile
from autotune.tuning.host_earlier import Earlier, earlier_profile
from benchmarks.simulation.profiles import profile

OWN, FASTER, LARGER = Settings(batch_size=32), Settings(batch_size=32, threads=2), Settings(batch_size=64)


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TaskFile:
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.chdir(tmp_path)
    return TaskFile(tmp_path / "train.py", ())


def put(threads: int) -> None:
    """A profile of this machine, for so many threads."""
    machine = machine_type(probe())
    made = profile(OWN, {"safe": Settings(batch_size=32, threads=threads), "max": LARGER}, machine)
    profiles.write(default_path(machine.key, "train"), replace(made, software=made.software))


def test_without_one_there_is_nothing(target: TaskFile) -> None:
    assert earlier_profile(target, probe()) == Earlier()


def test_each_level_gets_what_it_allows(target: TaskFile) -> None:
    put(threads=1)
    found = earlier_profile(target, probe())
    assert {settings.batch_size for settings in found.settings["safe"]} == {32}
    assert {settings.batch_size for settings in found.settings["max"]} == {32, 64}
    assert "the search began with the settings of an earlier profile" in found.notes[0]


def test_settings_are_clamped_to_this_machine(target: TaskFile) -> None:
    put(threads=4096)
    threads = probe().budget.threads
    assert all(s.threads <= threads for s in earlier_profile(target, probe()).settings["safe"])
