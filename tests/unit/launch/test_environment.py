"""The environment that training starts in, and what becomes of LD_PRELOAD."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.knobs.settings import Settings
from autotune.launch.environment import Preload, environment, own_threads, preload, scrub
from tests.doubles.machine import inventory

TWO = Settings(processes=2, threads=4)
JEMALLOC, TCMALLOC = (found.library for found in inventory().software.allocators)


@pytest.mark.parametrize(
    ("name", "present", "result"),
    [
        ("default", "", Preload()),
        ("default", "/opt/libjemalloc.so", Preload(users="/opt/libjemalloc.so")),
        ("jemalloc", "", Preload(JEMALLOC)),
        ("tcmalloc", "", Preload(TCMALLOC)),
        ("jemalloc", "/opt/libmine.so", Preload(f"/opt/libmine.so:{JEMALLOC}")),
        ("jemalloc", "/opt/libjemalloc.so", Preload()),
        ("jemalloc", "/opt/libtcmalloc.so", Preload(users="/opt/libtcmalloc.so")),
    ],
)
def test_what_is_preloaded_already_stays(name: str, present: str, result: Preload) -> None:
    assert preload(name, inventory(), present) == result


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"platform": "darwin"}, "jemalloc is preloaded on Linux only"),
        ({"allocators": ()}, "jemalloc is not installed here"),
    ],
)
def test_an_allocator_that_cannot_be_preloaded_is_named_with_the_reason(change: dict, reason: str) -> None:
    here = inventory()
    here = replace(here, software=replace(here.software, **change))
    assert preload("jemalloc", here, "") == Preload(reason=reason)


@pytest.mark.parametrize("settings", [TWO, Settings()])
def test_several_machines_exchange_over_the_interface_between_them(settings: Settings) -> None:
    found = environment(settings, inventory(), {}, interface="eth1")
    assert found.set["GLOO_SOCKET_IFNAME"] == "eth1"


@pytest.mark.parametrize(
    ("settings", "base", "added", "kept"),
    [
        (Settings(threads=8), {"PATH": "/bin"}, None, []),  # one process sets its threads itself
        (TWO, {}, "4", []),
        (TWO, {"OMP_NUM_THREADS": "3"}, None, ["OMP_NUM_THREADS"]),
        (TWO, {"OMP_NUM_THREADS": "4"}, None, []),
    ],
)
def test_the_users_threads_win_and_are_named(
    settings: Settings, base: dict[str, str], added: str | None, kept: list[str]
) -> None:
    found = environment(settings, inventory(), base)
    assert found.set.get("OMP_NUM_THREADS") == added
    assert [item.name for item in found.kept] == kept
    assert all(f"{item.name}={base[item.name]} is yours and stays" in item.note for item in found.kept)


@pytest.mark.parametrize(
    ("words", "threads"),
    [
        ({"OMP_NUM_THREADS": "3"}, 3),
        ({"OMP_NUM_THREADS": "x"}, 4),
        ({}, 4),
        ({"OMP_NUM_THREADS": "1", "TORCHELASTIC_RUN_ID": "none"}, 4),
    ],
)
def test_torchruns_own_default_is_not_the_users_word(words: dict[str, str], threads: int) -> None:
    settings, notes = own_threads(TWO, words)
    assert (settings.threads, len(notes)) == (threads, threads != 4)


@pytest.mark.parametrize(
    ("base", "kept"),
    [
        ({"OMP_WAIT_POLICY": "active"}, "OMP_WAIT_POLICY=active is yours and stays; tuned would be passive."),
        ({"OMP_WAIT_POLICY": " PASSIVE"}, None),
        ({"GOMP_SPINCOUNT": "9"}, "GOMP_SPINCOUNT=9 is yours and stays; tuned would be OMP_WAIT_POLICY=passive."),
        ({"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "9"}, "KMP_BLOCKTIME=9 is yours and stays;"),
    ],
)
def test_the_users_own_way_of_waiting_wins_and_is_named(base: dict[str, str], kept: str | None) -> None:
    found = environment(Settings(threads=8, omp_wait_policy="passive"), inventory(), base)
    assert "OMP_WAIT_POLICY" not in found.set
    assert [item.note.startswith(kept) for item in found.kept if kept] == [True] * bool(kept)
    assert len(found.kept) == bool(kept)


@pytest.mark.parametrize(
    ("settings", "base", "wanted"),
    [
        (TWO, {}, "lo"),
        (TWO, {"GLOO_SOCKET_IFNAME": "eth0"}, None),
        (Settings(), {}, None),
        (Settings(processes=2, backend="nccl"), {}, None),
    ],
)
def test_gloo_talks_over_the_loopback(settings: Settings, base: dict[str, str], wanted: str | None) -> None:
    assert environment(settings, inventory(), base).set.get("GLOO_SOCKET_IFNAME") == wanted


MARKS = (
    "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK ROLE_RANK MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID "
    "TORCHELASTIC_USE_AGENT_STORE OMPI_COMM_WORLD_RANK PMI_RANK PMI_SIZE PMIX_RANK PMIX_NAMESPACE "
    "MV2_COMM_WORLD_RANK HYDI_CONTROL_FD HYDRA_HOST_FILE MPI_LOCALRANKID SLURM_PROCID"
)
REST = (
    "PATH HOME CUDA_VISIBLE_DEVICES LD_LIBRARY_PATH LD_PRELOAD http_proxy HTTPS_PROXY NO_PROXY OMP_NUM_THREADS "
    "LOCAL_CACHE MASTER_KEY RANKING HYDRA_LAUNCHER_EXEC SLURM_JOB_ID SLURM_CPUS_PER_TASK GLOO_SOCKET_IFNAME "
    "NCCL_DEBUG I_MPI_ROOT"
)


def test_a_surrounding_jobs_marks_are_removed_and_the_rest_stays() -> None:
    base = dict.fromkeys(f"{MARKS} {REST}".split(), "1")
    assert scrub(base) == dict.fromkeys(REST.split(), "1")
    assert len(base) == len(f"{MARKS} {REST}".split())
