"""A working folder of its own, a machine that is already probed, a profile of it, and the command line here."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from autotune import cli
from autotune import export as exported
from autotune.knobs.settings import Settings
from autotune.launch import prepare
from autotune.probes import inventory as probes
from autotune.probes.facts import Inventory
from autotune.profiles import file as profiles
from autotune.profiles.format import machine_type
from autotune.tuning import check
from tests.doubles.profiles import BASELINE, profile
from tests.doubles.simulation.simulator import inventory

USES_US = "import autotune"
"""A script that lets `autotune.load` share its work out."""


class Said(NamedTuple):
    """What one call answered."""

    code: int
    out: str
    err: str


Say = Callable[..., Said]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder and cache, no variable that names profiles, and no rank of anything."""
    monkeypatch.chdir(tmp_path)
    named = (f"AUTOTUNE_{what}" for what in ("PROFILE", "PROFILES", "LEVEL", "DISABLE"))
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", *named):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Inventory:
    """A machine of eight cores, already probed."""
    found = inventory(8, 8)
    set_machine(monkeypatch, found)
    return found


def set_machine(monkeypatch: pytest.MonkeyPatch, found: Inventory) -> None:
    """Let every command find the machine ``found``."""
    for room in (probes, prepare, exported, check):
        monkeypatch.setattr(room, "probe", lambda *_, **__: found)


@pytest.fixture
def saved(elsewhere: Path, machine: Inventory) -> Path:
    """A profile of this machine."""
    made = profile(machine_type(machine), software={"torch": machine.software.torch, "cuda": machine.software.cuda})
    return profiles.write(elsewhere / "tuned.yaml", made)


@pytest.fixture
def foreign(elsewhere: Path) -> Path:
    """A profile of another machine."""
    return profiles.write(elsewhere / "foreign.yaml", profile())


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Run ``autotune ARGUMENTS`` here."""

    def run(*arguments: str | Path) -> Said:
        with pytest.raises(SystemExit) as ended:
            cli.main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Said(int(ended.value.code or 0), out, err)

    return run


def profile_of(settings: Settings, folder: Path, machine: Inventory) -> Path:
    """A profile that has ``settings`` at every level."""
    level = profile().levels["amp"]
    levels = {name: type(level)(settings, 2500.0, level.speedup, True) for name in profile().levels}
    made = profile(machine_type(machine), levels=levels, baseline=BASELINE)
    return profiles.write(folder / "bound.yaml", made)
