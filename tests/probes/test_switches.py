"""Switches of recorded machines."""

from __future__ import annotations

from pathlib import Path

import pytest
from machines import MACHINES

from autotune.probes.switches import _CAPABILITY, Switches, probe


@pytest.mark.parametrize(("text", "on"), [("1", True), ("2", True), ("0", False)])
def test_numa_balancing(tmp_path: Path, text: str, on: bool) -> None:
    machine = MACHINES["laptop"]().having({"/proc/sys/kernel/numa_balancing": text})
    assert probe(machine.at(tmp_path)).numa_balancing is on


@pytest.mark.parametrize(
    ("answer", "capability"), [((0, "AVX2"), "AVX2"), ((1, ""), None), ((0, "a traceback\nof lines"), None)]
)
def test_what_pytorch_uses(tmp_path: Path, answer: tuple[int, str], capability: str | None) -> None:
    machine = MACHINES["laptop"]()
    system = machine.having(commands={**machine.recording.commands, f"python -c {_CAPABILITY}": answer}).at(tmp_path)
    assert probe(system).capability == capability


def test_an_empty_machine_tells_nothing(tmp_path: Path) -> None:
    assert probe(MACHINES["laptop"]().without("/").at(tmp_path)) == Switches()
