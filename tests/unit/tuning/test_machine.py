"""The machine during a run: its CPUs stay the same."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import pytest

from autotune.errors import MachineChanged, NothingUsable
from autotune.probes.system import System
from autotune.tuning.machine import same_cpus
from tests.doubles.simulation.simulator import inventory

INVENTORY = inventory(4, 4)


class Now(System):
    """A machine with four CPUs, of which some are ``online`` and in the ``mask``, and a ``quota``."""

    def __init__(self, mask: Iterable[int], online: str = "0-3", quota: str = "max 100000") -> None:
        super().__init__()
        self._mask = frozenset(mask)
        self._files = {
            "/sys/devices/system/cpu/online": online,
            "/proc/self/cgroup": "0::/",
            "/proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
            "/sys/fs/cgroup/cpu.max": quota,
        }

    def read(self, path: str) -> str | None:
        return self._files.get(path)

    def affinity(self) -> frozenset[int]:
        return self._mask


def test_the_same_cpus_are_no_matter() -> None:
    with same_cpus(INVENTORY, Now(range(4))):
        pass


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (Now(range(1)), "affinity mask (1 of 4 CPUs)"),
        (Now(range(1), online="0"), "1 online CPU"),  # the kernel also takes it out of what the mask reads as
        (Now(range(4), quota="50000 100000"), "cgroup CPU quota 0.5"),
    ],
)
def test_other_cpus_or_another_quota_end_the_run_with_what_was_and_what_is(now: System, words: str) -> None:
    before = re.escape(INVENTORY.budget.limit)
    with pytest.raises(MachineChanged, match=f"{before} before, {re.escape(words)} now"), same_cpus(INVENTORY, now):
        raise NothingUsable("an error that came of it")


def test_the_kernel_is_asked() -> None:
    with pytest.raises(MachineChanged), same_cpus(replace(INVENTORY, budget=replace(INVENTORY.budget, cpus=(123456,)))):
        pass
