"""``autotune run --tune-if-missing``: tuned once, shared, and training goes on where tuning fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock

from autotune.errors import NothingUsable
from autotune.knobs.settings import Settings
from autotune.probes.facts import Inventory
from autotune.profiles import file as profiles
from autotune.profiles.format import machine_type, versions
from autotune.trial.target import Script
from autotune.tuning import if_missing as command
from benchmarks.simulation.profiles import profile
from benchmarks.simulation.simulator import inventory

MACHINE: Inventory = inventory(8, 8)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    monkeypatch.chdir(tmp_path)
    for name in ("AUTOTUNE_PROFILE", "AUTOTUNE_PROFILES", "AUTOTUNE_DISABLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(command, "probe", lambda: MACHINE)
    return Script((tmp_path / "train.py").resolve(), (), "train.py")


def made(path: Path) -> Path:
    """A profile of the script on this machine."""
    found = profile(Settings(batch_size=32), machine=machine_type(MACHINE))
    path.parent.mkdir(parents=True, exist_ok=True)
    target = replace(found.target, name="train")
    return profiles.write(path, replace(found, target=target, software=versions(MACHINE)))


class Tuner:
    """Keeps the scripts that were tuned, each of which gets a profile, and what was said."""

    def __init__(self) -> None:
        self.tuned: list[str] = []
        self.said: list[str] = []

    def __call__(self, target: Script) -> str | None:
        return command.tune_if_missing(target, self.tune, self.said.append)

    def tune(self, target: Script) -> None:
        self.tuned.append(target.name)
        made(Path("profiles") / machine_type(MACHINE).key / "train.yaml")


@pytest.fixture
def tuner() -> Tuner:
    return Tuner()


def test_tunes_once_and_shares(script: Script, tuner: Tuner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_PROFILES", str(tmp_path / "shared"))
    assert tuner(script) is None
    assert tuner(script) is None
    assert tuner.tuned == ["train"]
    assert (tmp_path / "shared" / machine_type(MACHINE).key / "train.yaml").is_file()


def test_a_profile_that_another_one_made_meanwhile_is_taken(
    script: Script, tuner: Tuner, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter([None, Path("made.yaml")])
    monkeypatch.setattr(command, "_found", lambda *_: next(found))
    assert tuner(script) is None
    assert tuner.tuned == []


def test_who_tunes_for_too_long_is_not_waited_for(
    script: Script, tuner: Tuner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "WAIT_SECONDS", 0.05)
    lease = Path("profiles") / machine_type(MACHINE).key / "train.tuning"
    lease.parent.mkdir(parents=True)
    with FileLock(lease):
        why_not = tuner(script)
    assert why_not is not None
    assert "another process has tuned for" in why_not
    assert "waiting for its profile" in tuner.said[0]
    assert tuner.tuned == []


def test_what_cannot_be_tuned_trains_as_it_is(script: Script) -> None:
    def tune(_target: Script) -> None:
        raise NothingUsable("no step was seen")

    found = command.tune_if_missing(script, tune, print)
    assert found == "the script starts as it is; it could not be tuned: no step was seen"


@pytest.mark.parametrize("variable", ["AUTOTUNE_DISABLE", "AUTOTUNE_PROFILE"])
def test_own_wishes_come_first(script: Script, tuner: Tuner, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "1")
    assert tuner(script) is None
    assert tuner.tuned == []
