"""Libraries in loader workers have one thread where a profile says so, and in trials as many as in the run."""

import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from threadpoolctl import ThreadpoolController
from torch.utils.data import DataLoader, Dataset

from autotune.knobs.settings import Settings
from autotune.knobs.worker_threads import PYTORCHS, set_threads
from autotune.trial.child import rank
from autotune.trial.target import OUR_ONE, THREAD_VARIABLES, USERS_THREADS
from tests.torch.records import prepared


def threads() -> list[int]:
    """Threads of each library that is not PyTorch's own."""
    return [each.num_threads for each in ThreadpoolController().lib_controllers if not PYTORCHS.search(each.filepath)]


class Threads(Dataset[Any]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(threads())


@pytest.fixture(autouse=True)
def _three_threads() -> Any:
    before = threads()
    assert before, "NumPy has a BLAS"
    set_threads(lambda _variables: 3)
    yield
    set_threads(lambda _variables: before[0])


@pytest.mark.parametrize(("value", "own", "found"), [("one", 0, 1), ("one", 1, 1), ("default", 1, 3)])
def test_workers_have_one_thread(value: str, own: int, found: int) -> None:
    loader = DataLoader(Threads(), num_workers=own)
    with prepared(loader, num_workers=1, worker_threads=value) as session:
        assert {number for batch in loader for number in batch.flatten().tolist()} == {found}
        assert session.not_applied == ()
    assert set(threads()) == {3}, "this process keeps its own"


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/opt/torch/.venv/lib/python3.12/site-packages/numpy.libs/libscipy_openblas64_.so", False),
        ("/opt/torch/.venv/lib/python3.12/site-packages/torch/lib/libgomp.so.1", True),
        ("/usr/lib/python3/dist-packages/torch.libs/libgomp.so.1", True),
    ],
)
def test_which_libraries_are_pytorchs(path: str, own: bool) -> None:
    assert bool(PYTORCHS.search(path)) == own


def test_another_module_of_that_name_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "threadpoolctl", SimpleNamespace())  # type: ignore[arg-type]
    loader = DataLoader([0, 1], num_workers=1)
    with prepared(loader, num_workers=1, worker_threads="one") as session:
        assert len(list(loader)) == 2
        assert dict(session.not_applied)["worker_threads"] == "threadpoolctl cannot be imported"


def test_the_users_own_function_is_called_last() -> None:
    def users(_worker: int) -> None:
        set_threads(lambda _variables: 2)

    loader = DataLoader(Threads(), num_workers=1, worker_init_fn=users)
    with prepared(loader, num_workers=1, worker_threads="one"):
        assert {number for batch in loader for number in batch.flatten().tolist()} == {2}
        assert loader.worker_init_fn is users


@pytest.mark.parametrize(
    ("users", "script", "settings", "found"),
    [
        ("", {}, {}, len(os.sched_getaffinity(0))),
        ("OMP_NUM_THREADS=2", {}, {}, 2),
        ("OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=1", {}, {}, 1),
        ("OMP_NUM_THREADS=2", {"OPENBLAS_NUM_THREADS": "1"}, {}, 1),
        ("", {}, {"processes": 2, "threads": 1}, 1),
    ],
)
def test_a_trial_has_the_threads_of_the_run(users, script, settings, found, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = dict.fromkeys(THREAD_VARIABLES, OUR_ONE) | {USERS_THREADS: users} | script
    monkeypatch.setattr(os, "environ", environment)
    asked = list[int]()
    module = SimpleNamespace(set_num_threads=asked.append)
    monkeypatch.setitem(sys.modules, "numexpr", module)
    rank._put_back_threads(Settings(**settings))
    openblas = [each for each in ThreadpoolController().lib_controllers if each.internal_api == "openblas"]
    assert [each.num_threads for each in openblas] == [found] * len(openblas)
    assert len(asked) == 1
    own = dict(each.split("=") for each in users.split()) | script
    assert {name: environment[name] for name in THREAD_VARIABLES if name in environment} == (
        own or ({"OMP_NUM_THREADS": "1"} if settings else {})
    )
