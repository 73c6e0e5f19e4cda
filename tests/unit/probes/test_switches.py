"""Switches, battery and governor of recorded machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.probes.switches import moves_pages, power
from tests.doubles.machines import MACHINES, host, laptop


@pytest.mark.parametrize(("text", "on"), [("1", True), ("2", True), ("0", False)])
def test_numa_balancing(tmp_path: Path, text: str, on: bool) -> None:
    machine = MACHINES["laptop"]().having({"/proc/sys/kernel/numa_balancing": text})
    assert moves_pages(machine.at(tmp_path)) is on


def test_an_empty_machine_tells_nothing(tmp_path: Path) -> None:
    system = MACHINES["laptop"]().without("/").at(tmp_path)
    assert (moves_pages(system), power(system)) == (False, ())


BATTERY = "/sys/class/power_supply/BAT0"
CPUFREQ = "/sys/devices/system/cpu/cpu0/cpufreq"


def test_a_discharging_battery_is_noted(tmp_path: Path) -> None:
    (note,) = power(laptop().at(tmp_path))
    assert "battery" in note


@pytest.mark.parametrize(
    "files",
    [
        {f"{BATTERY}/status": "Charging"},
        {f"{BATTERY}/status": "Full"},
        {f"{BATTERY}/scope": "Device"},  # a mouse
        {f"{BATTERY}/type": "UPS"},
    ],
)
def test_other_states_are_not(tmp_path: Path, files: dict[str, str]) -> None:
    assert power(laptop().having(files).at(tmp_path)) == ()


@pytest.mark.parametrize(
    ("governor", "driver", "noted"),
    [("powersave", "acpi-cpufreq", True), ("powersave", "intel_pstate", False), ("performance", "acpi-cpufreq", False)],
)
def test_governor(tmp_path: Path, governor: str, driver: str, noted: bool) -> None:
    files = {f"{CPUFREQ}/scaling_governor": governor, f"{CPUFREQ}/scaling_driver": driver}
    assert bool(power(host([(0,)], cpuinfo="").having(files).at(tmp_path))) == noted
