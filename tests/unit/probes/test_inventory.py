"""All probes together on recorded machines, and the inventory as JSON."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from autotune.probes import memory
from autotune.probes.facts import Inventory
from autotune.probes.inventory import probe
from tests.doubles.machines import GIB, MACHINES, amd_cpuinfo, host

EXPECTED: dict[str, tuple[Any, ...]] = {
    # packages, cores and CPUs; the family; threads that fit, and why; bytes of memory, and why; processes; OOM kills
    "laptop": ((1, 14, 20), "raptor-lake", 20, "20 online CPUs", 32 * GIB, "MemTotal", None, None),
    "server": ((2, 64, 128), "sapphire-rapids", 128, "128 online CPUs", 1024 * GIB, "MemTotal", None, None),
    # The quota sits on the parent.
    "pod_v2": ((1, 32, 64), "epyc-zen3", 2, "cgroup CPU quota 2", 2 * GIB, "cgroup memory.max", 1024, 1),
    # The limit on memory sits on an ancestor that the container cannot see.
    "pod_v1": (
        *((1, 32, 64), "epyc-zen3", 1, "cgroup CPU quota 1.5"),
        *(4 * GIB, "cgroup hierarchical_memory_limit", 512, 3),
    ),
    "mig_slice": ((1, 8, 8), "epyc-zen3", 8, "8 online CPUs", 64 * GIB, "MemTotal", None, None),
    "slurm_step": ((1, 64, 64), "epyc-zen2", 1, "affinity mask (1 of 64 CPUs)", 64 * GIB, "MemTotal", None, None),
    "arm_server": ((1, 64, 64), "neoverse-v1", 64, "64 online CPUs", 128 * GIB, "MemTotal", None, None),
}


@pytest.mark.parametrize("name", MACHINES)
def test_recorded_machines_are_read_and_their_inventories_read_back_and_name_nobody(tmp_path: Path, name: str) -> None:
    machine = MACHINES[name]()
    system = machine.at(tmp_path)
    found = probe(system, nvml=machine.nvml)
    cpu, budget, limits = found.cpu, found.budget, found.limits
    assert not [note for note in found.notes if "failed" in note]
    assert (
        *((cpu.packages, cpu.cores, len(cpu.logical)), cpu.family, budget.threads, budget.limit),
        *(found.memory.limit, found.memory.limit_source, limits.processes, memory.oom_kills(system)),
    ) == EXPECTED[name]
    assert limits.processes_source == ("cgroup pids.max" if limits.processes else "unlimited")
    written = json.dumps(dataclasses.asdict(found))
    assert TypeAdapter(Inventory).validate_python(json.loads(written)) == found
    assert not any(word in written for word in (str(tmp_path), "kubepods", "boot_id", "uuid", "GPU-", "MIG-"))


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({"/proc/meminfo": "nothing"}, "memory"),
        ({"/sys/devices/system/cpu/online": "all of them"}, "cpu"),
        ({"/sys/fs/cgroup/cpuset.cpus.effective": "x"}, "budget"),
    ],
)
def test_one_failed_probe_is_a_note(tmp_path: Path, files: dict[str, str], name: str) -> None:
    machine = host([(0,), (1,)], cpuinfo=amd_cpuinfo(2, 25, 17, "AMD EPYC")).having(files, affinity=(0,))
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
