"""Settings to environment and command line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.knobs.backend import BACKENDS
from autotune.knobs.settings import Settings
from autotune.launch.cluster import Cluster
from autotune.launch.command import command
from autotune.launch.environment import Environment, environment, scrub
from autotune.probes.facts import Route

from .records import inventory

TWO = Settings(processes=2, threads=4)


def test_one_process_is_plain_python() -> None:
    found = command(Settings(), "train.py", ["--lr", "0.1", "a b"], "/usr/bin/python3")
    assert found == ["/usr/bin/python3", "train.py", "--lr", "0.1", "a b"]


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_several_processes_are_counted_out(backend: str) -> None:
    found = command(Settings(processes=3, backend=backend), "train.py", ["--nproc-per-node=auto"], "py")
    start = ["py", "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=3"]
    assert found == [*start, "train.py", "--nproc-per-node=auto"]


def test_mpi_starts_under_mpiexec_through_our_entry() -> None:
    found = command(Settings(processes=2, backend="mpi"), "train.py", ["-n", "3"], "py", mpiexec="/env/bin/mpiexec")
    start = ["/env/bin/mpiexec", "-launcher", "fork", "-n", "2", "py", "-m", "autotune.runtime.entry"]
    assert found == [*start, "mpi", "train.py", "-n", "3"]


def test_a_registered_backend_starts_under_torchrun_through_our_entry() -> None:
    found = command(Settings(processes=2, backend="ccl"), "train.py", [], "py")
    start = ["py", "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2", "-m"]
    assert found == [*start, "autotune.runtime.entry", "ccl", "train.py"]


def test_what_is_watched_starts_through_our_entry() -> None:
    entry = ["-m", "autotune.runtime.entry", "gloo", "train.py"]
    assert command(Settings(), "train.py", [], "py", watched=True) == ["py", *entry]
    found = command(Settings(processes=2, backend="gloo"), "train.py", [], "py", watched=True, binder=["bind"])
    assert found[-7:] == ["bind", "py", "-u", *entry]


@pytest.mark.parametrize(("processes", "here"), [(1, True), (2, False)])
def test_several_machines_meet_at_torchruns_rendezvous(processes: int, here: bool) -> None:
    found = command(
        Settings(processes=processes, backend="gloo" if processes > 1 else None),
        "train.py",
        [],
        "py",
        cluster=Cluster(2, "fd00::1", 1234, "job"),
        route=Route("10.0.0.2", "eth0", here),
    )
    meeting = ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=[fd00::1]:1234", "--rdzv-id=job"]
    meeting += [f"--rdzv-conf=is_host={int(here)}", "--local-addr=10.0.0.2"]
    start = ["py", "-m", "torch.distributed.run", *meeting, f"--nproc-per-node={processes}"]
    assert found == [*start, "train.py"]


def test_mpiexec_starts_the_other_machines_itself() -> None:
    two, settings = Cluster(2, hosts=("a", "b")), Settings(processes=2, backend="mpi")
    start = ["-hosts", "a,b", "-ppn", "2", "-n", "4", "py", "-m", "autotune.runtime.entry", "mpi", "train.py"]
    assert command(settings, "train.py", [], "py", cluster=two) == ["mpiexec", *start]
    way = Route("10.0.0.1", "eth1", here=False)
    found = command(settings, "train.py", [], "py", cluster=two, route=way)
    assert found == ["mpiexec", "-localhost", "10.0.0.1", *start], "a name of its own need not resolve elsewhere"


@pytest.mark.parametrize("settings", [TWO, Settings()])
def test_several_machines_exchange_over_the_interface_between_them(settings: Settings) -> None:
    found = environment(settings, inventory(), {}, interface="eth1")
    assert found.set["GLOO_SOCKET_IFNAME"] == "eth1"


def test_the_table_has_every_backend() -> None:
    assert [name for name, row in BACKENDS.items() if "cuda" in row.devices] == ["gloo", "nccl"]


def test_threads_are_set_for_both_libraries() -> None:
    assert environment(Settings(threads=8), inventory(), {"PATH": "/bin"}) == Environment(
        {"OMP_NUM_THREADS": "8", "MKL_NUM_THREADS": "8"}
    )


@pytest.mark.parametrize(
    ("base", "added", "kept"),
    [
        ({"OMP_NUM_THREADS": "3"}, {}, ["OMP_NUM_THREADS"]),
        ({"OMP_NUM_THREADS": "8"}, {}, []),
        ({"MKL_NUM_THREADS": "3"}, {"OMP_NUM_THREADS": "3"}, ["MKL_NUM_THREADS"]),
        ({"MKL_NUM_THREADS": "8"}, {"OMP_NUM_THREADS": "8"}, []),
        ({"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "8"}, {}, ["OMP_NUM_THREADS"]),
        ({"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "2"}, {}, ["OMP_NUM_THREADS", "MKL_NUM_THREADS"]),
        ({}, {"OMP_NUM_THREADS": "8", "MKL_NUM_THREADS": "8"}, []),
    ],
)
def test_the_users_environment_wins_and_is_named(base: dict[str, str], added: dict[str, str], kept: list[str]) -> None:
    found = environment(Settings(threads=8), inventory(), base)
    assert found.set == added
    assert [item.name for item in found.kept] == kept
    assert all(f"{item.name}={base[item.name]} is yours and stays" in item.note for item in found.kept)


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


def test_a_machine_without_a_loopback_is_left_alone() -> None:
    assert set(environment(TWO, inventory(network=()), {}).set) == {"OMP_NUM_THREADS", "MKL_NUM_THREADS"}


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


def test_an_allocator_that_is_missing_is_said_not_raised() -> None:
    here = inventory()
    here = replace(here, software=replace(here.software, allocators=()))
    found = environment(Settings(allocator="jemalloc"), here, {})
    assert "LD_PRELOAD" not in found.set
    assert found.not_applied == (("allocator", "jemalloc is not installed here"),)


def test_the_users_own_allocator_stays() -> None:
    base = {"LD_PRELOAD": "/opt/libtcmalloc.so"}
    found = environment(Settings(allocator="jemalloc"), inventory(), base)
    assert "LD_PRELOAD" not in found.set
    assert [(item.name, item.value) for item in found.kept] == [("LD_PRELOAD", "/opt/libtcmalloc.so")]
    assert found.not_applied == ()
