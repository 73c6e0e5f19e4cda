"""All probes together, and the inventory as JSON."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from autotune.probes.facts import Inventory
from autotune.probes.inventory import probe, to_json
from benchmarks.simulation.recorded import recorded_inventory
from tests.doubles.machines import MACHINES


def bare(inventory: Inventory) -> Inventory:
    """The inventory as it may be written: without uuids."""
    return dataclasses.replace(inventory, gpus=tuple(dataclasses.replace(g, uuid="") for g in inventory.gpus))


@pytest.mark.parametrize("name", MACHINES)
def test_recorded_machines(tmp_path: Path, name: str) -> None:
    machine = MACHINES[name]()
    found = probe(machine.at(tmp_path), nvml=machine.nvml)
    written = json.dumps(to_json(found))
    assert not [note for note in found.notes if "failed" in note]
    assert recorded_inventory(json.loads(written)) == bare(found)
    assert not any(gpu.uuid in written or "uuid" in written for gpu in found.gpus)
    assert not any(word in written for word in (str(tmp_path), "/work", "kubepods", "boot_id"))


def test_a_broken_gpu_driver_is_a_note(tmp_path: Path) -> None:
    class Broken:
        NVMLError = NVMLError_LibraryNotFound = NVMLError_DriverNotLoaded = OSError

        def nvmlInit(self) -> None:  # noqa: N802
            raise ValueError("driver/library version mismatch")

    found = probe(MACHINES["laptop"]().at(tmp_path), nvml=Broken())
    assert found.gpus == ()
    assert any("version mismatch" in note for note in found.notes)
