from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from autotune.core.settings import Settings
from autotune.runtime.applier import Training
from autotune.runtime.appliers.malloc import Malloc

FAULTS = """
import resource, sys, torch
from autotune.runtime.applier import Training
from autotune.runtime.appliers.malloc import Malloc

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.zeros(2**22).add_(1)  # 16 MiB, freed at once
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

malloc = Malloc(sys.argv[1], Training(None, None, torch.device("cpu")))
torch.set_num_threads(1)
assert malloc.start() is None
faults()
during = faults()
malloc.undo()
faults()
print(during, faults())
"""


@pytest.mark.torch
@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_freed_memory_is_used_again() -> None:
    """Counted in page faults: a block that the kernel gave anew has none of its pages yet."""
    run = subprocess.run([sys.executable, "-c", FAULTS, "keep"], capture_output=True, text=True, check=True)
    during, after = map(int, run.stdout.split())
    assert during < 1000 < after


def test_the_default_changes_nothing() -> None:
    malloc = Malloc("default", Training(None, None, torch.device("cpu")))
    assert malloc.start() is None
    malloc.undo()


def test_it_does_nothing_beside_another_allocator() -> None:
    assert Settings(allocator="jemalloc", malloc="keep") == Settings(allocator="jemalloc")
