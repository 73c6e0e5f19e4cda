"""Two real processes train as one does, over gloo and over MPI."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from autotune.knobs.backend import LOOPBACK
from autotune.knobs.settings import Settings
from autotune.launch.command import command
from autotune.probes.software import mpiexec
from autotune.probes.system import System
from autotune.runtime import processes
from autotune.runtime.session import Session
from autotune.scripts.entry.torchrun import free_port
from tests.processes.runtime.scenes import SCENES

pytestmark = pytest.mark.torch
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module", params=["gloo", pytest.param("mpi", marks=pytest.mark.mpi)])
def ranks(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """What two real ranks made of `two_ranks.py`."""
    folder = tmp_path_factory.mktemp("ranks")
    own = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    script = [str(Path(__file__).with_name("two_ranks.py")), str(folder)]
    (by_gloo if request.param == "gloo" else by_mpi)(script, own)
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in (0, 1)]


def by_gloo(script: list[str], environment: dict[str, str]) -> None:
    """Start ``script`` twice, as torchrun would."""
    own = {**environment, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    started = [
        subprocess.Popen([sys.executable, *script], env={**own, "RANK": str(rank)}, stderr=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    errors = [process.communicate(timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], "\n".join(errors)


def by_mpi(script: list[str], environment: dict[str, str]) -> None:
    """Start ``script`` unchanged under mpiexec: its settings say gloo, MPI takes its place."""
    line = command(
        Settings(processes=2, backend="mpi"), script[0], script[1:], sys.executable, mpiexec=mpiexec(System()) or ""
    )
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_ranks_know_their_place_and_leave(ranks: list[dict[str, Any]]) -> None:
    assert [rank["place"] for rank in ranks] == [[0, 2, True], [1, 2, False]]
    assert [rank["left"] for rank in ranks] == [True, True]
    assert [rank["not_applied"] for rank in ranks] == [[], []]


def test_a_script_that_shares_out_itself_is_not_shared_out_twice(ranks: list[dict[str, Any]]) -> None:
    for epoch in (0, 1):
        seen = [rank["sampler of its own"][epoch] for rank in ranks]
        assert sorted(seen[0] + seen[1]) == list(range(8))
    assert ranks[0]["sampler of its own"][0] != ranks[0]["sampler of its own"][1]


@pytest.mark.parametrize("scene", sorted(SCENES))
def test_two_ranks_do_what_one_process_does(scene: str, ranks: list[dict[str, Any]]) -> None:
    with Session(None, device="cpu") as session:
        expected = SCENES[scene](session)
    first, second = (rank["scenes"][scene] for rank in ranks)
    assert first == second, "the ranks are apart"
    torch.testing.assert_close(torch.tensor(first), torch.tensor(expected), rtol=1e-4, atol=1e-5)


def test_noise_of_a_batch_differs_by_process_and_nothing_else(ranks: list[dict[str, Any]]) -> None:
    (own, after), (other, later) = (rank["noise"] for rank in ranks)
    assert len({*own, *other}) == 4
    assert after == later


@pytest.mark.parametrize("kind", [0, 1], ids=["buffers", "frozen parameters"])
def test_what_forward_writes_is_the_same_everywhere(kind: int, ranks: list[dict[str, Any]]) -> None:
    (values, notes), (others, _) = (rank["written"][kind] for rank in ranks)
    assert values == others
    assert any(values[1])
    assert "computed from one process's share" in " ".join(notes)


@pytest.mark.parametrize("place", [0, 1], ids=["noise on gradients", "a step now and then"])
def test_weights_that_come_apart_are_rank_zeros_and_noted(place: int, ranks: list[dict[str, Any]]) -> None:
    (weights, notes), (others, _) = (rank["drifting"][place] for rank in ranks)
    assert weights == others
    assert "the processes' weights differ" in " ".join(notes)


def test_data_that_were_split_otherwise_are_rank_zeros(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert "processes hold different datasets" in rank["split"]["reason"]
        assert sorted(number for batch in rank["split"]["seen"] for number in batch) == sorted(ranks[0]["split"]["own"])


@pytest.mark.parametrize(
    ("environment", "size", "single"),
    [
        ({}, 1, True),
        ({"WORLD_SIZE": "4"}, 1, True),  # a scheduler's leftover: no rank, no group
        ({"WORLD_SIZE": "4", "RANK": "0"}, 4, True),
        ({"WORLD_SIZE": "4", "RANK": "0", "LOCAL_WORLD_SIZE": "2"}, 4, False),
        ({"WORLD_SIZE": "4", "RANK": "0", "MASTER_ADDR": "node7"}, 4, False),
        ({"WORLD_SIZE": "four", "RANK": "0"}, 1, True),
    ],
)
def test_the_launch_is_read_from_the_environment(environment: dict[str, str], size: int, single: bool) -> None:
    assert processes.world_size(environment) == size
    assert processes.single_node(environment) is single


@pytest.mark.parametrize(
    ("backend", "environment", "words"),
    [
        (None, {}, None),
        ("gloo", {"WORLD_SIZE": "2", "RANK": "0"}, None),
        ("mpi", {"WORLD_SIZE": "2", "RANK": "0", "PMI_SIZE": "2"}, None),
        ("mpi", {"WORLD_SIZE": "2", "RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, None),
        ("mpi", {"WORLD_SIZE": "2", "RANK": "0"}, "not started by mpiexec"),
        ("mpi", {"WORLD_SIZE": "2", "RANK": "0", "PMI_SIZE": "4"}, "not started by mpiexec"),
        ("ccl", {"WORLD_SIZE": "1", "RANK": "0"}, "oneccl_bindings_for_pytorch"),
    ],
)
def test_mpi_needs_ranks_that_mpiexec_started(backend: str, environment: dict[str, str], words: str | None) -> None:
    reason = processes.unreachable(backend, environment)
    assert reason is None if words is None else words in (reason or "")


@pytest.mark.parametrize(("own", "used"), [(None, LOOPBACK), ("eth1", "eth1")])
def test_loopback_is_chosen_unless_the_user_chose(own: str | None, used: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str | None] = []
    joined = lambda *_, **__: found.append(os.environ.get(processes.INTERFACE))  # noqa: E731
    monkeypatch.setattr(torch.distributed, "init_process_group", joined)
    launched = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    for name, value in (launched | ({processes.INTERFACE: own} if own else {})).items():
        monkeypatch.setenv(name, value)
    with contextlib.ExitStack() as leaving:
        processes.join("gloo", torch.device("cpu"), None, leaving)
    assert (found, os.environ.get(processes.INTERFACE)) == ([used], own)


@pytest.mark.parametrize(
    ("target", "gpus", "environment", "wanted"),
    [
        ("cuda", 2, {"WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1"}, torch.device("cuda", 1)),
        ("cuda", 1, {"WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "3"}, torch.device("cuda", 0)),
        ("cuda", 2, {}, torch.device("cuda")),
        ("cpu", 2, {"WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1"}, torch.device("cpu")),
    ],
)
def test_each_local_rank_has_its_gpu(target, gpus, environment, wanted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert processes.own_device(target, environment) == wanted


FAILS = """
import os
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import autotune

def train(tuned):
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.ones(400, 4)), batch_size=4)
    model, optimizer, loader = tuned.prepare(model, optimizer, loader)
    for step, (inputs,) in enumerate(loader):
        if step == 3 and os.environ["RANK"] == "1" and sys.argv[1] != "after training":
            raise KeyError("sample 12")
        tuned.backward(model(inputs).mean())
        optimizer.step()
        print("step", step)

if sys.argv[1] == "in a block":
    with autotune.load() as tuned:
        train(tuned)
elif sys.argv[1] == "after training":
    train(autotune.load())
    if os.environ["RANK"] == "1":
        raise KeyError("sample 12")
else:
    train(autotune.load())
"""


def failing(how: str, tmp_path: Path) -> tuple[list[int], list[tuple[str, str]]]:
    """Run two processes, of which one fails: their exit codes, and what each has written."""
    (tmp_path / "script.py").write_text(FAILS)
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    own = os.environ | meeting | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    line = [sys.executable, str(tmp_path / "script.py"), how]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(line, env=own | {"RANK": str(rank)}, **pipes) for rank in (0, 1)]
    ends = [process.communicate(timeout=120) for process in started]
    return [process.returncode for process in started], ends


@pytest.mark.parametrize("how", ["in a block", "to the end"])
def test_no_process_trains_on_when_another_failed(how: str, tmp_path: Path) -> None:
    codes, ends = failing(how, tmp_path)
    assert codes == [1, 1], ends
    assert "KeyError: 'sample 12'" in ends[1][1]
    assert ends[0][0].count("step") <= 4


def test_a_process_that_ends_after_another_failed_says_so_in_a_sentence(tmp_path: Path) -> None:
    codes, ends = failing("after training", tmp_path)
    assert codes[1] == 1
    assert "Traceback" not in ends[0][1]
    assert "another process of this training ended early" in ends[0][1]
