"""Settings and machines to the command line and the environment."""

from dataclasses import replace
from typing import Any

import pytest

from autotune.knobs.binding import AffinityPlan
from autotune.knobs.change import Affinity
from autotune.knobs.settings import Settings
from autotune.launch.command import BINDER, command, environment, scrub, slurm_tasks, system_tools
from autotune.probes.facts import Allocator
from tests.doubles.simulation import simulator

JEMALLOC, TCMALLOC = "/usr/lib/libjemalloc.so.2", "/usr/lib/libtcmalloc_minimal.so.4"
PLAIN = simulator.inventory(8, 8)
ALLOCATORS = (Allocator("jemalloc", JEMALLOC), Allocator("tcmalloc", TCMALLOC))
HERE = replace(PLAIN, software=replace(PLAIN.software, allocators=ALLOCATORS))
"""Eight CPUs, jemalloc and tcmalloc."""
ALONE = AffinityPlan((0, 1, 2, 3), (Affinity((0, 1), (2, 3)),))
LOCAL = AffinityPlan((0, 1, 2, 3), (Affinity((0, 1), (0, 1)), Affinity((2, 3), (2, 3))))


TORCHRUN = "py -m torch.distributed.run --standalone --local-addr=127.0.0.1 --nproc-per-node=2"
SEVERAL = "py -m torch.distributed.run --nnodes=2"
ENTRY = "-m autotune.scripts.entry"
BINDING = "py -m autotune.knobs.binding"
OURS = ["py", *BINDER]
TWO = Settings(processes=2, threads=4)


@pytest.mark.parametrize(
    ("settings", "options", "line"),
    [
        (Settings(), {}, "py train.py -n 3"),
        (Settings(), {"applies": True}, f"py {ENTRY} gloo train.py -n 3"),
        (Settings(), {"binder": OURS}, f"{BINDING} py train.py -n 3"),
        (TWO, {}, f"{TORCHRUN} train.py -n 3"),
        (TWO.but(backend="nccl"), {}, f"{TORCHRUN} train.py -n 3"),
        (TWO, {"binder": OURS}, f"{TORCHRUN} --no-python {BINDING} py -u train.py -n 3"),
        (TWO, {"binder": ["b"], "applies": True}, f"{TORCHRUN} --no-python b py -u {ENTRY} gloo train.py -n 3"),
        (Settings(), {"machines": 2, "options": ["--nnodes=2"]}, f"{SEVERAL} --nproc-per-node=1 train.py -n 3"),
        (TWO, {"options": ["--nnodes=2"]}, f"{SEVERAL} --nproc-per-node=2 train.py -n 3"),
        (
            TWO.but(backend="mpi"),
            {"mpiexec": "/env/bin/mpiexec"},
            f"/env/bin/mpiexec -launcher fork -n 2 py {ENTRY} mpi train.py -n 3",
        ),
    ],
)
def test_what_starts_a_script(settings: Settings, options: dict[str, Any], line: str) -> None:
    """Options of the script stay its own."""
    assert command(settings, "train.py", ["-n", "3"], "py", **options) == line.split()


def test_system_tools_bind_without_this_package() -> None:
    assert system_tools(ALONE) == ["taskset", "-c", "0-1"]
    assert system_tools(AffinityPlan((0, 1), LOCAL.affinities[1:])) == ["taskset", "-c", "2-3"]
    shell, option, cases, name = system_tools(LOCAL)
    assert (shell, option, name) == ("sh", "-c", "sh")
    assert '0) set -- taskset -c 0-1 "$@";; 1) set -- taskset -c 2-3 "$@";;' in cases


def test_a_slurm_step_of_several_tasks_on_a_machine_is_told_from_one_each() -> None:
    assert slurm_tasks({"SLURM_STEP_NUM_NODES": "3", "SLURM_STEP_NUM_TASKS": "12"})
    assert slurm_tasks({"SLURM_STEP_NUM_NODES": "3", "SLURM_STEP_NUM_TASKS": "3"}) is None
    assert slurm_tasks({"SLURM_NNODES": "4", "SLURM_JOB_NODELIST": "a[1-4]"}) is None


MINE, TUNED = "/opt/libmine.so", "is yours and stays; tuned would be"
JE, OPT_JE, OPT_TC = Settings(allocator="jemalloc"), "/opt/libjemalloc.so", "/opt/libtcmalloc.so"
WAITING, SPINS = Settings(threads=8, omp_wait_policy="passive"), {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "9"}


@pytest.mark.parametrize(
    ("settings", "base", "variable", "added", "kept"),
    [
        (Settings(), {}, "LD_PRELOAD", None, None),
        (JE, {}, "LD_PRELOAD", JEMALLOC, None),
        (Settings(allocator="tcmalloc"), {}, "LD_PRELOAD", TCMALLOC, None),
        (JE, {"LD_PRELOAD": MINE}, "LD_PRELOAD", f"{MINE}:{JEMALLOC}", None),
        (JE, {"LD_PRELOAD": OPT_JE}, "LD_PRELOAD", None, None),
        (JE, {"LD_PRELOAD": OPT_TC}, "LD_PRELOAD", None, f"LD_PRELOAD={OPT_TC} {TUNED} jemalloc."),
        (Settings(), {"LD_PRELOAD": OPT_JE}, "LD_PRELOAD", None, f"LD_PRELOAD={OPT_JE} {TUNED} default."),
        (Settings(threads=8), {"PATH": "/bin"}, "OMP_NUM_THREADS", None, None),  # one process sets its threads itself
        (TWO, {}, "OMP_NUM_THREADS", "4", None),
        (TWO, {"OMP_NUM_THREADS": "3"}, "OMP_NUM_THREADS", None, "OMP_NUM_THREADS=3 is yours and stays"),
        (TWO, {"OMP_NUM_THREADS": "4"}, "OMP_NUM_THREADS", None, None),
        (WAITING, {"OMP_WAIT_POLICY": "active"}, "OMP_WAIT_POLICY", None, f"OMP_WAIT_POLICY=active {TUNED} passive."),
        (WAITING, {"OMP_WAIT_POLICY": " PASSIVE"}, "OMP_WAIT_POLICY", None, None),
        (WAITING, {"GOMP_SPINCOUNT": "9"}, "OMP_WAIT_POLICY", None, f"GOMP_SPINCOUNT=9 {TUNED} OMP_WAIT_POLICY=p"),
        (WAITING, SPINS, "OMP_WAIT_POLICY", None, "KMP_BLOCKTIME=9 is yours and stays;"),
        (TWO, {}, "GLOO_SOCKET_IFNAME", "lo", None),
        (TWO, {"GLOO_SOCKET_IFNAME": "eth0"}, "GLOO_SOCKET_IFNAME", None, "GLOO_SOCKET_IFNAME=eth0 is yours and stays"),
        (Settings(), {}, "GLOO_SOCKET_IFNAME", None, None),
        (Settings(processes=2, backend="nccl"), {}, "GLOO_SOCKET_IFNAME", None, None),
    ],
)
def test_what_the_user_has_set_stays_and_is_named(settings, base, variable, added, kept) -> None:
    found = environment(settings, HERE, base)
    assert found.set.get(variable) == added
    assert [note.startswith(str(kept)) for note in found.kept] == [True] * bool(kept)


def test_gloo_leaves_the_loopback_for_other_machines() -> None:
    assert "GLOO_SOCKET_IFNAME" not in environment(TWO, HERE, {}, machines=2).set


def test_an_allocator_that_is_not_installed_is_named() -> None:
    here = replace(HERE, software=replace(HERE.software, allocators=()))
    found = environment(JE, here, {})
    assert (found.set, found.not_applied) == ({}, {"allocator": "jemalloc is not installed here"})


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
