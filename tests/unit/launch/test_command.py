"""Settings and machines to the command line."""

from __future__ import annotations

import re

import pytest

from autotune.errors import UsageError
from autotune.knobs.affinity import AffinityPlan
from autotune.knobs.knob import Affinity
from autotune.knobs.settings import Settings
from autotune.launch.command import (
    PORT,
    Cluster,
    check_slurm,
    command,
    from_options,
    starter,
    system_tools,
)
from autotune.probes.facts import Route

ALONE = AffinityPlan((0, 1, 2, 3), (Affinity((0, 1), (2, 3)),))
LOCAL = AffinityPlan((0, 1, 2, 3), (Affinity((0, 1), (0, 1), (0,)), Affinity((2, 3), (2, 3), (1,))))


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_several_processes_are_counted_out(backend: str) -> None:
    found = command(Settings(processes=3, backend=backend), "train.py", ["--nproc-per-node=auto"], "py")
    start = ["py", "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=3"]
    assert found == [*start, "train.py", "--nproc-per-node=auto"]


def test_mpi_starts_under_mpiexec_through_our_entry() -> None:
    found = command(Settings(processes=2, backend="mpi"), "train.py", ["-n", "3"], "py", mpiexec="/env/bin/mpiexec")
    start = ["/env/bin/mpiexec", "-launcher", "fork", "-n", "2", "py", "-m", "autotune.runtime.entry"]
    assert found == [*start, "mpi", "train.py", "-n", "3"]


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
        cluster=Cluster(2, "fd00::1", 1234),
        route=Route("10.0.0.2", "eth0", here),
    )
    meeting = ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=[fd00::1]:1234", "--rdzv-id=autotune"]
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


def test_one_process() -> None:
    assert command(Settings(), "train.py", ["x"], "py", binder=starter(ALONE, "py")) == (
        ["py", "-m", "autotune.knobs.binding", "py", "train.py", "x"]
    )
    assert system_tools(ALONE) == ["taskset", "-c", "0-1"]
    assert system_tools(AffinityPlan((0, 1), LOCAL.affinities[1:])) == ["numactl", "--physcpubind=2-3", "--membind=1"]


def test_several_processes() -> None:
    found = command(Settings(processes=2), "train.py", ["x"], "py", binder=starter(LOCAL, "py"))
    torchrun = [
        "py",
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--local-addr=127.0.0.1",
        "--nproc-per-node=2",
        "--no-python",
    ]
    assert found == [*torchrun, "py", "-m", "autotune.knobs.binding", "py", "-u", "train.py", "x"]
    printed = command(Settings(processes=2), "train.py", ["x"], "py", binder=system_tools(LOCAL))
    assert printed[:7] == torchrun
    assert printed[7:9] == ["sh", "-c"]
    assert printed[-4:] == ["py", "-u", "train.py", "x"]


class TestFromOptions:
    @pytest.mark.parametrize("nodes", [None, 1])
    def test_one_machine_is_no_cluster(self, nodes: int | None) -> None:
        assert from_options(nodes, None, None) is None
        assert from_options(None, None, "only") is None

    @pytest.mark.parametrize(
        ("endpoint", "host", "port"),
        [("a.b:1234", "a.b", 1234), ("10.0.0.1", "10.0.0.1", PORT), ("[fe80::1]:99", "fe80::1", 99)],
    )
    def test_machines_meet_at_an_endpoint(self, endpoint: str, host: str, port: int) -> None:
        assert from_options(2, endpoint, None) == Cluster(2, host, port)

    def test_mpiexec_starts_all_from_one(self) -> None:
        assert from_options(None, None, "a, b") == from_options(2, None, "a,b") == Cluster(2, hosts=("a", "b"))

    @pytest.mark.parametrize(
        ("nodes", "endpoint", "hosts", "said"),
        [
            (0, None, None, "at least 1"),
            (2, None, None, "--rdzv-endpoint"),
            (None, "a:1", None, "--nnodes"),
            (2, "a:b", None, "HOST:PORT"),
            (2, "a:99999", None, "HOST:PORT"),
            (2, "fe80::1", None, "HOST:PORT"),
            (3, None, "a,b", "one name for each"),
            (None, None, "a,,b", "one name for each"),
        ],
    )
    def test_what_does_not_fit_is_a_usage_error(
        self, nodes: int | None, endpoint: str | None, hosts: str | None, said: str
    ) -> None:
        with pytest.raises(UsageError, match=re.escape(said)):
            from_options(nodes, endpoint, hosts)


@pytest.mark.parametrize(
    ("nodes", "tasks", "tunes", "said"),
    [
        ("3", "12", False, "srun started 12 tasks on 3 machines; one on each starts its own"),
        ("1", "8", False, "srun started 8 tasks on one machine; one on each starts its own"),
        ("3", "3", False, "--nnodes 3 and --rdzv-endpoint HOST:29400"),
        ("3", "3", True, "srun --ntasks=1 autotune tune"),
        ("1", "8", True, "srun --ntasks=1 autotune tune"),
    ],
)
def test_a_slurm_step_of_several_tasks_is_refused(nodes: str, tasks: str, tunes: bool, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_slurm({"SLURM_STEP_NUM_NODES": nodes, "SLURM_STEP_NUM_TASKS": tasks}, tunes=tunes)


@pytest.mark.parametrize("tasks", ["1", "3"])
def test_one_task_on_each_machine_is_right(tasks: str) -> None:
    cluster = None if tasks == "1" else Cluster(3, "a")
    check_slurm({"SLURM_STEP_NUM_NODES": tasks, "SLURM_STEP_NUM_TASKS": tasks}, cluster)
    check_slurm({"SLURM_NNODES": "4", "SLURM_JOB_NODELIST": "a[1-4]"})
