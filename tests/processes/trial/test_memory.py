"""Trials of scripts have memory as a long run has it."""

from __future__ import annotations

import subprocess
import sys

import pytest

STEPS = """
import ctypes, resource
from autotune.knobs.allocator import raise_thresholds
glibc = ctypes.CDLL(None)
glibc.malloc.restype, glibc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
def new_pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [glibc.malloc(ctypes.c_size_t(size << 20)) for size in (3, 6, 3)]
    for block in blocks:
        ctypes.memset(block, 1, 3 << 20)
    for block in blocks:
        glibc.free(ctypes.c_void_p(block))
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
young = [new_pages() for _ in range(4)][-1]
raise_thresholds()
print(young, [new_pages() for _ in range(4)][-1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_steps_take_no_new_memory_once_a_large_block_was_freed() -> None:
    done = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True, check=True)
    young, old = map(int, done.stdout.split())
    assert young > 1000
    assert old < 10
