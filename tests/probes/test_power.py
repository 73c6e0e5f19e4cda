"""Battery and governor."""

from __future__ import annotations

from pathlib import Path

import pytest
from machines import host, laptop

from autotune.probes import power

BATTERY = "/sys/class/power_supply/BAT0"
CPUFREQ = "/sys/devices/system/cpu/cpu0/cpufreq"


def test_a_discharging_battery_is_noted(tmp_path: Path) -> None:
    (note,) = power.probe(laptop().at(tmp_path))
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
    assert power.probe(laptop().having(files).at(tmp_path)) == ()


@pytest.mark.parametrize(
    ("governor", "driver", "noted"),
    [("powersave", "acpi-cpufreq", True), ("powersave", "intel_pstate", False), ("performance", "acpi-cpufreq", False)],
)
def test_governor(tmp_path: Path, governor: str, driver: str, noted: bool) -> None:
    files = {f"{CPUFREQ}/scaling_governor": governor, f"{CPUFREQ}/scaling_driver": driver}
    assert bool(power.probe(host([(0,)], cpuinfo="").having(files).at(tmp_path))) == noted
