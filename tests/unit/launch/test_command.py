"""Settings and machines to the command line."""

from __future__ import annotations

import re

import pytest
from hypothesis import given as cases
from hypothesis import strategies as st

from autotune.errors import UsageError
from autotune.knobs.affinity import AffinityPlan
from autotune.knobs.knob import Affinity
from autotune.knobs.settings import Settings
from autotune.launch.command import (
    PORT,
    Cluster,
    check_one_machine,
    command,
    from_options,
    from_slurm,
    host_names,
    idle_machines,
    starter,
    system_tools,
)
from autotune.probes.facts import Route

ALONE = AffinityPlan((0, 1, 2, 3), (Affinity((0, 1), (2, 3)),))
LOCAL = AffinityPlan((0, 1, 2, 3), (Affinity((0, 1), (0, 1), (0,)), Affinity((2, 3), (2, 3), (1,))))
STEP = {
    "SLURM_STEP_NUM_NODES": "3",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_NODELIST": "gpu[08-10]",
    "SLURM_JOB_ID": "123456",
    "SLURM_STEP_ID": "2",
}
ONE_TASK = STEP | {"SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NUM_TASKS": "1", "SLURM_STEP_NODELIST": "gpu08"}
EIGHT_TASKS = {
    "SLURM_JOB_ID": "123456",
    "SLURM_JOB_NUM_NODES": "1",
    "SLURM_NNODES": "1",
    "SLURM_NTASKS": "8",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "5",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "gpu08",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_TASKS_PER_NODE": "8",
    "SLURM_TASKS_PER_NODE": "8",
}
"""What ``srun -N1 -n8`` sets, in task 5."""


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


class TestSlurm:
    def test_sizes_come_from_the_step(self) -> None:
        assert from_slurm(STEP) == Cluster(3, "gpu08", PORT + 456, "slurm-123456-2")

    @pytest.mark.parametrize("environment", [{}, ONE_TASK, {"SLURM_NNODES": "4", "SLURM_JOB_NODELIST": "a[1-4]"}])
    def test_one_machine_or_a_batch_script_is_no_cluster(self, environment: dict[str, str]) -> None:
        assert from_slurm(environment) is None

    def test_several_tasks_on_a_machine_are_refused(self) -> None:
        with pytest.raises(UsageError, match="--ntasks-per-node=1"):
            from_slurm(STEP | {"SLURM_STEP_NUM_TASKS": "12"})

    def test_several_tasks_on_the_only_machine_are_refused(self) -> None:
        with pytest.raises(UsageError, match="srun started 8 tasks on one machine; one on each starts its own"):
            from_slurm(EIGHT_TASKS)

    @pytest.mark.parametrize("environment", [STEP, EIGHT_TASKS], ids=["three machines", "one machine"])
    def test_a_step_of_several_tasks_is_not_tuned(self, environment: dict[str, str]) -> None:
        with pytest.raises(UsageError, match=r"srun --ntasks=1 autotune tune"):
            check_one_machine(environment)
        check_one_machine({})
        check_one_machine(ONE_TASK)

    def test_machines_that_are_not_named_are_refused(self) -> None:
        with pytest.raises(UsageError, match="--rdzv-endpoint"):
            from_slurm(STEP | {"SLURM_STEP_NODELIST": "gpu[08-09]"})

    @pytest.mark.parametrize(
        ("hostlist", "names"),
        [
            ("login", ["login"]),
            ("gpu[01-03,7],login", ["gpu01", "gpu02", "gpu03", "gpu7", "login"]),
            ("a[1-2]b[3,5]", ["a1b3", "a1b5", "a2b3", "a2b5"]),
            ("a-1,b-2", ["a-1", "b-2"]),
            ("n[099-101]-ib", ["n099-ib", "n100-ib", "n101-ib"]),
            ("", []),
        ],
    )
    def test_host_lists_are_written_out(self, hostlist: str, names: list[str]) -> None:
        assert list(host_names(hostlist)) == names

    @cases(st.lists(st.integers(0, 9999), min_size=1, max_size=30, unique=True), st.integers(1, 6))
    def test_what_is_folded_comes_back(self, numbers: list[int], width: int) -> None:
        names = [f"n{str(number).zfill(width)}" for number in numbers]
        folded = "n[" + ",".join(name[1:] for name in names) + "]"
        assert list(host_names(folded)) == names

    @cases(st.text("ab[]-,019", max_size=20))
    def test_nonsense_never_raises(self, hostlist: str) -> None:
        assert all(isinstance(name, str) for name in host_names(hostlist))


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, False),
        ({"SLURM_JOB_NUM_NODES": "1"}, False),
        ({"SLURM_JOB_NUM_NODES": "4"}, True),
        ({"SLURM_JOB_NUM_NODES": "4", "SLURM_STEP_NUM_NODES": "4"}, False),
        ({"SLURM_JOB_NUM_NODES": "4", "SLURM_STEP_NUM_NODES": "1"}, False),
    ],
)
def test_machines_of_a_slurm_job_that_stay_idle_are_mentioned(environment: dict[str, str], said: bool) -> None:
    words = idle_machines(environment)
    assert (words is not None) == said
    assert words is None or "4 machines" in words
