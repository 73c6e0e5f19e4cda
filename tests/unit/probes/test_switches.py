"""Switches, battery and governor of recorded machines."""

from pathlib import Path

import pytest

from autotune.probes.switches import moves_pages, power
from tests.doubles.machines import laptop


@pytest.mark.parametrize(("text", "on"), [("1", True), ("2", True), ("0", False), (None, False)])
def test_numa_balancing(tmp_path: Path, text: str | None, on: bool) -> None:
    files = {"/proc/sys/kernel/numa_balancing": text} if text is not None else {}
    assert moves_pages(laptop().having(files).at(tmp_path)) is on


BATTERY = "/sys/class/power_supply/BAT0"
CPUFREQ = "/sys/devices/system/cpu/cpu0/cpufreq"
OTHER_DRIVER = {f"{BATTERY}/type": "UPS", f"{CPUFREQ}/scaling_driver": "acpi-cpufreq"}


@pytest.mark.parametrize(
    ("files", "word"),
    [
        ({}, "battery"),
        ({f"{BATTERY}/status": "Charging"}, None),
        ({f"{BATTERY}/scope": "Device"}, None),  # a mouse
        ({f"{BATTERY}/type": "UPS"}, None),
        (OTHER_DRIVER, "governor"),
        (OTHER_DRIVER | {f"{CPUFREQ}/scaling_governor": "performance"}, None),
    ],
)
def test_power_of_a_laptop(tmp_path: Path, files: dict[str, str], word: str | None) -> None:
    """Its driver, intel_pstate, clocks up by itself under the governor powersave."""
    notes = power(laptop().having(files).at(tmp_path))
    assert [word in note for note in notes] == ([True] if word else [])
