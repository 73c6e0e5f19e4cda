"""macOS by recorded commands."""

from __future__ import annotations

from pathlib import Path

from machines import GIB, Machine

from autotune.probes import cpu, memory, power
from autotune.testing.recorded import Recording

SYSCTL = f"""hw.logicalcpu: 10
hw.physicalcpu: 10
hw.perflevel0.logicalcpu: 6
hw.perflevel1.logicalcpu: 4
hw.memsize: {16 * GIB}
hw.optional.arm64: 1
hw.optional.arm.FEAT_BF16: 1
hw.optional.arm.FEAT_I8MM: 0
machdep.cpu.brand_string: Apple M2 Pro
"""
VM_STAT = """Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                              100000.
Pages active:                            400000.
Pages inactive:                          200000.
Pages speculative:                         1000.
"""
COMMANDS = {
    "sysctl hw machdep.cpu": (0, SYSCTL),
    "vm_stat": (0, VM_STAT),
    "pmset -g batt": (0, "Now drawing from 'Battery Power'\n"),
}
MAC = Machine({}, Recording(platform="darwin", machine="aarch64", commands=COMMANDS))


def test_cpu(tmp_path: Path) -> None:
    found = cpu.probe(MAC.at(tmp_path))
    assert (found.vendor, found.family, found.cores) == ("apple", "m2-pro", 10)
    assert [c.kind for c in found.logical] == ["efficiency"] * 4 + ["performance"] * 6
    assert found.features == ("bf16", "neon")


def test_memory(tmp_path: Path) -> None:
    found = memory.probe(MAC.at(tmp_path))
    assert (found.total, found.limit, found.available) == (16 * GIB, 16 * GIB, 301000 * 16384)


def test_battery(tmp_path: Path) -> None:
    assert "battery" in power.probe(MAC.at(tmp_path))[0]
