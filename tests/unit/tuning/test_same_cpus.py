"""The machine during a run: its CPUs stay the same."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.errors import MachineChanged, NothingUsable
from autotune.probes.system import System
from autotune.tuning.runner import same_cpus
from tests.doubles.machines import host
from tests.doubles.simulation.simulator import inventory

INVENTORY = inventory(4, 4)


def now(folder: Path, mask: tuple[int, ...] = (0, 1, 2, 3), **files: str) -> System:
    """A machine with four CPUs, of which some are in the ``mask``, and other ``files``."""
    return host([(cpu,) for cpu in range(4)], cpuinfo="", affinity=mask).having(files).at(folder)


def test_the_same_cpus_are_no_matter(tmp_path: Path) -> None:
    with same_cpus(INVENTORY, now(tmp_path)):
        pass


@pytest.mark.parametrize(
    ("mask", "files", "words"),
    [
        ((0,), {}, "affinity mask (1 of 4 CPUs)"),
        ((0,), {"/sys/devices/system/cpu/online": "0"}, "1 online CPU"),  # the kernel also takes it out of the mask
        ((0, 1, 2, 3), {"/sys/fs/cgroup/cpu.max": "50000 100000"}, "cgroup CPU quota 0.5"),
    ],
)
def test_other_cpus_or_another_quota_end_the_run_with_what_was_and_what_is(tmp_path: Path, mask, files, words) -> None:
    system = now(tmp_path, mask, **files)
    before = re.escape(INVENTORY.budget.limit)
    with pytest.raises(MachineChanged, match=f"{before} before, {re.escape(words)} now"), same_cpus(INVENTORY, system):
        raise NothingUsable("an error that came of it")


def test_the_kernel_is_asked() -> None:
    with pytest.raises(MachineChanged), same_cpus(replace(INVENTORY, budget=replace(INVENTORY.budget, cpus=(123456,)))):
        pass
