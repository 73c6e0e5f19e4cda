"""Real processes: a script is followed past the end of an epoch, and its trials have memory as its run has it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.inspect import epoch_end
from autotune.knobs.stated import baseline_settings
from autotune.probes import software
from autotune.probes.system import System
from autotune.trial.parent.trial_bench import TrialBench
from tests.processes.scripts.corpus import SMALL
from tests.processes.trial.running_scripts import here, running

pytestmark = [pytest.mark.torch, pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")]

EVALUATES = f"""{SMALL.format(samples=80, epochs=1000)}
    for turn in range(20):
        torch.ones(2**22).sum()
"""
STEPS = """
import ctypes, resource
from autotune.knobs.allocator import mmap_threshold, raise_mmap_threshold
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
raise_mmap_threshold(20 << 20)
print(young, [new_pages() for _ in range(4)][-1], mmap_threshold())
raise_mmap_threshold(10 << 20)
print(mmap_threshold())
"""


def test_steps_take_no_new_memory_once_a_large_block_was_freed() -> None:
    done = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True, check=True)
    young, old, threshold, never_lower = map(int, done.stdout.split())
    assert young > 1000
    assert old < 10
    assert threshold == never_lower == pytest.approx(20 << 20, abs=2**17)


def test_what_comes_between_epochs_is_seen_with_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(EVALUATES, tmp_path, monkeypatch) as runner:
        own = baseline_settings(runner.describe(), here())
        bench, follow = TrialBench(runner, own), f"{epoch_end.__name__}:{epoch_end.follow.__name__}"
        _, found = bench.inspect(own, follow, 4.0, mmap_threshold=0)
    assert found["steps"] == 20_000
    assert found["other_share"] > 0
    assert found["mmap_threshold"] == pytest.approx(2**24, abs=2**17)  # of the tensor of the evaluation


def test_memory_of_another_library_is_left_alone() -> None:
    library = {each.name: each.library for each in software.allocators(System())}.get("jemalloc")
    if library is None:
        pytest.skip("jemalloc is not installed")
    code = "from autotune.knobs import allocator as a; a.raise_mmap_threshold(32 << 20); a.mmap_threshold()"
    limit = 4 * 2**30  # of address space
    subprocess.run(
        [sys.executable, "-c", f"import resource as r; r.setrlimit(r.RLIMIT_AS, ({limit}, {limit})); {code}"],
        env=os.environ | {"LD_PRELOAD": library},
        check=True,
    )
