"""``autotune run --tune-if-missing``: tuned once, shared, and training goes on where tuning fails."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.commands import tune_if_missing as command
from autotune.errors import NothingUsable
from autotune.knobs.settings import Settings
from autotune.probes.facts import Inventory
from autotune.profiles import file as profiles
from autotune.profiles.machine import machine_type, versions
from autotune.trial.target import Script
from benchmarks.simulation.profiles import profile
from benchmarks.simulation.simulator import inventory

MACHINE: Inventory = inventory(8, 8)
HOLDER = """
import sys, filelock
with filelock.FileLock(sys.argv[1]):
    print(flush=True)
    sys.stdin.read()
"""


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


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The scripts that were tuned; each run writes a profile."""
    calls: list[str] = []

    def tune(target: Script, *_: Any, **__: Any) -> None:
        calls.append(target.name)
        made(Path("profiles") / machine_type(MACHINE).key / "train.yaml")

    monkeypatch.setattr(command, "tune", tune)
    return calls


def test_tunes_once_and_shares(
    script: Script, tuned: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_PROFILES", str(tmp_path / "shared"))
    assert command.tune_if_missing(script) is None
    assert command.tune_if_missing(script) is None
    assert tuned == ["train"]
    assert (tmp_path / "shared" / machine_type(MACHINE).key / "train.yaml").is_file()


def test_a_profile_that_another_one_made_meanwhile_is_taken(
    script: Script, tuned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter([None, Path("made.yaml")])
    monkeypatch.setattr(command, "_found", lambda *_: next(found))
    assert command.tune_if_missing(script) is None
    assert tuned == []


def test_who_tunes_for_too_long_is_not_waited_for(
    script: Script, tuned: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "WAIT_SECONDS", 0.05)
    lease = Path("profiles") / machine_type(MACHINE).key / "train.tuning"
    lease.parent.mkdir(parents=True)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(lease)], stdin=pipe, stdout=pipe) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        why_not = command.tune_if_missing(script)
        holder.communicate()
    assert why_not is not None
    assert "another process has tuned for" in why_not
    assert "waiting for its profile" in capsys.readouterr().err
    assert tuned == []


def test_what_cannot_be_tuned_trains_as_it_is(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    def tune(*_: Any, **__: Any) -> None:
        raise NothingUsable("no step was seen")

    monkeypatch.setattr(command, "tune", tune)
    assert command.tune_if_missing(script) == ("the script starts as it is; it could not be tuned: no step was seen")


@pytest.mark.parametrize("variable", ["AUTOTUNE_DISABLE", "AUTOTUNE_PROFILE"])
def test_own_wishes_come_first(
    script: Script, tuned: list[str], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "1")
    assert command.tune_if_missing(script) is None
    assert tuned == []
