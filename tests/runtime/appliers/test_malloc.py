from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from autotune.runtime.applier import Training
from autotune.runtime.appliers.malloc import Malloc

from autotune.knobs.settings import Settings

FAULTS = """
import resource, sys, torch
from autotune.runtime.applier import Training
from autotune.runtime.appliers.malloc import Malloc

torch.set_num_threads(1)
malloc = Malloc(sys.argv[1], Training(None, None, torch.device("cpu")))
assert malloc.start() is None
for round in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.zeros(2**24).add_(1)  # 64 MiB, freed at once
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
malloc.undo()
"""


def faults(value: str) -> int:
    """Page faults of ten blocks, each freed before the next."""
    run = subprocess.run([sys.executable, "-c", FAULTS, value], capture_output=True, text=True, check=True)
    return int(run.stdout)


@pytest.mark.torch
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_freed_memory_is_used_again() -> None:
    """A block that the kernel gives anew has none of its pages yet."""
    assert 10 * faults("keep") < faults("default")


def test_the_default_changes_nothing() -> None:
    malloc = Malloc("default", Training(None, None, torch.device("cpu")))
    assert malloc.start() is None
    malloc.undo()


def test_it_does_nothing_beside_another_allocator() -> None:
    assert Settings(allocator="jemalloc", malloc="keep") == Settings(allocator="jemalloc")
