from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.trial.parent.trial_environment import trial_environment
from autotune.trial.paths import StudyPaths

PATHS = StudyPaths(Path("/tmp/autotune-test"))
GIB = 2**30


def made(base: dict[str, str] | None = None, **changes: Any) -> dict[str, str]:
    options: dict[str, Any] = {"threads": 8, "memory": 64 * GIB, **changes}
    return trial_environment(base or {}, PATHS, **options)


def test_the_users_own_variables_are_kept() -> None:
    base = {"CUDA_VISIBLE_DEVICES": "1", "LD_LIBRARY_PATH": "/opt/lib", "https_proxy": "http://proxy", "HOME": "/root"}
    found = made(base)
    assert {name: found[name] for name in base} == base


def test_the_users_mapping_is_not_changed() -> None:
    base = {"OMP_NUM_THREADS": "3"}
    made(base)
    assert base == {"OMP_NUM_THREADS": "3"}


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"])
def test_pools_start_with_one_thread_whatever_the_user_set(name: str) -> None:
    assert made({name: "64"})[name] == "1"


def test_trials_meet_on_the_loopback_only() -> None:
    found = made({"GLOO_SOCKET_IFNAME": "eth0"})
    assert found["GLOO_SOCKET_IFNAME"] == found["NCCL_SOCKET_IFNAME"] == "lo"


def test_trials_leave_no_traces_outside_the_scratch_folder() -> None:
    found = made({"TMPDIR": "/home/somebody", "WANDB_MODE": "online", "TORCHINDUCTOR_CACHE_DIR": "/home/cache"})
    assert found["TMPDIR"] == str(PATHS.root)
    assert found["TORCHINDUCTOR_CACHE_DIR"].startswith(str(PATHS.root))
    assert found["WANDB_MODE"] == "disabled"
    assert found["PYTHONDONTWRITEBYTECODE"] == "1"


def test_gpus_are_counted_without_a_context_and_in_bus_order() -> None:
    found = made({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"})
    assert found["PYTORCH_NVML_BASED_CUDA_CHECK"] == "1"
    assert found["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


@pytest.mark.parametrize(
    ("threads", "gib", "workers"),
    [(2, 4, 2), (1, 64, 1), (64, 64, 8), (64, 6, 4), (4, 1, 1), (8, 0, 1)],
    ids=["B08", "one CPU", "many", "little memory", "less than one worker's", "unknown memory"],
)
def test_compile_workers_fit_processors_and_memory(threads: int, gib: int, workers: int) -> None:
    assert made(threads=threads, memory=gib * GIB)["TORCHINDUCTOR_COMPILE_THREADS"] == str(workers)


@pytest.mark.parametrize(
    ("base", "preload", "expected"),
    [
        ({}, None, None),
        ({"LD_PRELOAD": "/mine.so"}, None, "/mine.so"),
        ({}, "/usr/lib/libjemalloc.so.2", "/usr/lib/libjemalloc.so.2"),
        ({"LD_PRELOAD": "/mine.so"}, "/usr/lib/libjemalloc.so.2", "/usr/lib/libjemalloc.so.2 /mine.so"),
        ({"LD_PRELOAD": ""}, "/usr/lib/libjemalloc.so.2", "/usr/lib/libjemalloc.so.2"),
    ],
)
def test_the_allocator_comes_before_the_users_own_preloads(
    base: dict[str, str], preload: str | None, expected: str | None
) -> None:
    assert made(base, tuned={"LD_PRELOAD": preload} if preload else {}).get("LD_PRELOAD") == expected


@given(
    st.dictionaries(st.text(min_size=1, max_size=9), st.text(max_size=9)), st.integers(1, 512), st.integers(0, 2**50)
)
def test_always_plain_texts_with_at_least_one_compile_worker(base: dict[str, str], threads: int, memory: int) -> None:
    found = made(base, threads=threads, memory=memory)
    assert all(isinstance(value, str) for value in found.values())
    assert 1 <= int(found["TORCHINDUCTOR_COMPILE_THREADS"]) <= min(threads, 8)
    assert found["AUTOTUNE_TRIAL"] == "1"
    assert set(base) <= set(found)
