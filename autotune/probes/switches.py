"""Kernel and power settings that cost speed if they are wrong."""

from __future__ import annotations

from autotune.probes.system import System

_SUPPLIES = "/sys/class/power_supply"
_CPUFREQ = "/sys/devices/system/cpu/cpu0/cpufreq"
_SELF_GOVERNED = frozenset({"intel_pstate", "amd-pstate-epp"})
"""Drivers whose ``powersave`` still clocks up under load."""


def moves_pages(system: System) -> bool:
    """Return True if the kernel moves pages between NUMA nodes by itself."""
    return system.read("/proc/sys/kernel/numa_balancing") not in (None, "0")


def power(system: System) -> tuple[str, ...]:
    """Return a sentence for every power setting that slows training or makes its speed uneven."""
    notes = []
    if _on_battery(system):
        notes.append("The machine runs on its battery: it will be slower and less steady than on mains power.")
    governor, driver = system.read(f"{_CPUFREQ}/scaling_governor"), system.read(f"{_CPUFREQ}/scaling_driver")
    if governor == "powersave" and driver not in _SELF_GOVERNED:
        notes.append(
            "The CPU frequency governor is powersave, which holds the clock down: performance would be faster."
        )
    return tuple(notes)


def _on_battery(system: System) -> bool:
    """Return True if a laptop's own battery discharges; mice and pens have batteries too, with scope Device."""
    if system.platform == "darwin":
        return "'Battery Power'" in system.run(["pmset", "-g", "batt"], timeout=5).stdout
    for folder in (f"{_SUPPLIES}/{name}" for name in system.list(_SUPPLIES)):
        kind, status = system.read(f"{folder}/type"), system.read(f"{folder}/status")
        if (kind, status) == ("Battery", "Discharging") and system.read(f"{folder}/scope") != "Device":
            return True
    return False
