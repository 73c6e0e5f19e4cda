"""All probes together, and the inventory as JSON."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from autotune.probes.facts import Inventory
from autotune.probes.inventory import probe, to_json
from benchmarks.simulation.recorded import recorded_inventory
from tests.doubles.machines import MACHINES, amd_cpuinfo, host


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


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({"/proc/meminfo": "nothing"}, "memory"),
        ({"/sys/devices/system/cpu/online": "all of them"}, "cpu"),
        ({"/sys/fs/cgroup/cpuset.cpus.effective": "x"}, "budget"),
    ],
)
def test_one_failed_probe_is_a_note(tmp_path: Path, files: dict[str, str], name: str) -> None:
    machine = host([(0,), (1,)], cpuinfo=amd_cpuinfo(2, 25, 17, "AMD EPYC")).having(files)
    found = probe(machine.at(tmp_path))
    assert [note for note in found.notes if f"The {name} probe failed" in note]
    assert found.budget.threads >= 1
    assert found.software.torch == "2.7.1+cu126"


def test_an_empty_machine_still_has_an_inventory(tmp_path: Path) -> None:
    found = probe(host([], cpuinfo="").without("/").at(tmp_path))
    assert (found.budget.threads, found.budget.cpus) == (1, (0,))


def test_a_broken_gpu_driver_is_a_note(tmp_path: Path) -> None:
    class Broken:
        NVMLError = NVMLError_LibraryNotFound = NVMLError_DriverNotLoaded = OSError

        def nvmlInit(self) -> None:  # noqa: N802
            raise ValueError("driver/library version mismatch")

    found = probe(MACHINES["laptop"]().at(tmp_path), nvml=Broken())
    assert found.gpus == ()
    assert any("version mismatch" in note for note in found.notes)
