"""A machine that is already probed, a profile of it, and the commands that share profiles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotune import cli
from autotune.probes.facts import Inventory
from autotune.profiles import file as profiles
from autotune.profiles.format import machine_type
from benchmarks.simulation.simulator import inventory

from ..doubles.profiles import profile

Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder and a cache of its own, and no variable that names profiles."""
    monkeypatch.chdir(tmp_path)
    for name in ("AUTOTUNE_PROFILE", "AUTOTUNE_PROFILES", "AUTOTUNE_LEVEL", "AUTOTUNE_DISABLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Inventory:
    """A machine of eight cores, already probed."""
    found = inventory(8, 8)
    monkeypatch.setattr("autotune.probes.inventory.probe", lambda *_: found)
    return found


@pytest.fixture
def saved(tmp_path: Path, machine: Inventory) -> Path:
    """A profile of this machine."""
    made = profile(machine_type(machine), software={"torch": machine.software.torch, "cuda": machine.software.cuda})
    return profiles.write(tmp_path / "tuned.yaml", made)


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Run ``autotune profiles ARGUMENTS``."""

    def run(*words: Any) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main(["profiles", *map(str, words)])
        return (int(ended.value.code or 0), *capsys.readouterr())

    return run
