"""What a session touches: nothing that need not change, and all of it comes back."""

import os
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import autotune
from autotune.knobs.binding import VARIABLE, AffinityPlan
from autotune.knobs.change import Affinity
from autotune.knobs.settings import KNOB_NAMES
from autotune.knobs.task_facts import Fingerprint
from autotune.runtime.session import Session
from tests.torch.conftest import differences, process_state
from tests.torch.records import prepared, quiet
from tests.torch.snapshot import Snapshot

VALUES: dict[str, tuple[Any, ...]] = {
    "threads": (torch.get_num_threads() + 1,),
    "interop_threads": (torch.get_num_interop_threads() + 1,),
    "omp_wait_policy": ("passive",),
    "malloc": ("keep",),
    "allocator": ("jemalloc",),
    "binding": ("cores", "numa"),
    "matmul_precision": ("medium",),
    "cudnn_benchmark": (True,),
    "processes": (2,),
    "backend": ("mpi",),
    "pin_memory": (True,),
    "num_workers": (1, 2),
    "prefetch_factor": (4,),
    "worker_start": ("fork",),
    "worker_threads": ("one",),
    "batch_size": (8,),
    "channels_last": (True,),
    "optimizer_impl": ("foreach", "fused"),
    "compile": ("default", "reduce-overhead"),
    "precision": ("bf16", "fp16", "tf32"),
}
"""Other values than the user's, by knob."""
PROCESS_WIDE = tuple(VALUES)[:11]
"""Knobs that change no model, optimizer or loader; the last one does nothing on CPUs."""
TOGETHER = {name: {"num_workers": 1} for name in ("prefetch_factor", "worker_start", "worker_threads")}
TOGETHER["backend"] = {"processes": 2}
"""What a knob needs beside it to do anything."""
SINGLE = [(name, value) for name, values in VALUES.items() for value in values]


@pytest.fixture(autouse=True)
def _as_on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that a process cannot take back are made without effect."""
    monkeypatch.setattr(torch, "set_num_interop_threads", lambda _count: None)


class Objects:
    """A user's own model, optimizer and loader, of which every attribute has been made by a first step."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        data = TensorDataset(torch.randn(16, 3, 4, 4), torch.arange(16) % 2)
        self.loader = DataLoader(data, batch_size=4, shuffle=True)
        self.step(self.model, self.optimizer, self.loader)

    @property
    def all(self) -> tuple[Any, ...]:
        """In the order in which people prepare them."""
        return self.model, self.optimizer, self.loader

    def step(
        self, model: Any, optimizer: Any, loader: Any, backward: Callable[..., Any] = torch.autograd.backward
    ) -> None:
        """Train on one batch."""
        inputs, targets = next(iter(loader))
        backward(nn.functional.cross_entropy(model(inputs), targets))
        optimizer.step()
        optimizer.zero_grad()


@pytest.fixture
def objects() -> Objects:
    return Objects()


def settings(name: str, value: Any) -> Any:
    return quiet(**{"batch_size": 4, "precision": "fp32", **TOGETHER.get(name, {}), name: value})


def untouched() -> Iterator[tuple[str, Callable[[], Session]]]:
    """Sessions that have nothing to change in what is prepared."""
    yield "no profile", lambda: Session(None, device="cpu")
    yield "the same settings", lambda: Session(quiet(batch_size=4), device="cpu", level="safe")
    yield "other knobs", lambda: Session(quiet(channels_last=True, num_workers=2), device="cpu", knobs={"malloc"})
    everything = quiet(batch_size=4, channels_last=True, num_workers=2, optimizer_impl="fused", precision="bf16")
    yield "another training", lambda: Session(everything, device="cpu", compared=Fingerprint())
    for name in PROCESS_WIDE:
        for value in VALUES[name]:
            yield f"{name}={value}", lambda n=name, v=value: Session(settings(n, v), device="cpu", level="safe")


def test_the_table_has_a_value_of_every_knob() -> None:
    assert set(VALUES) == set(KNOB_NAMES)


@pytest.mark.parametrize("begin", [pytest.param(begin, id=name) for name, begin in untouched()])
def test_where_nothing_has_to_change_nothing_is_touched(objects: Objects, begin: Callable[[], Session]) -> None:
    before = Snapshot(*objects.all, storage=True)
    with begin() as session:
        prepared = session.prepare(*objects.all)
        assert all(ours is own for ours, own in zip(prepared, objects.all, strict=True))
        assert before.changes() == []
        objects.step(*prepared, session.backward)
    assert before.changes() == []


@pytest.mark.parametrize("variables", [{"AUTOTUNE_DISABLE": "1"}, {}], ids=["disabled", "no profile"])
def test_load_without_anything_to_apply(objects: Objects, variables, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    before, state, environment = Snapshot(*objects.all, storage=True), process_state(), dict(os.environ)
    with autotune.load(target="nothing of this name") as tuned:
        prepared = tuned.prepare(*objects.all)
        assert before.changes() == differences(state, process_state()) == []
        assert dict(os.environ) == environment
        objects.step(*prepared, tuned.backward)


@pytest.mark.parametrize(("name", "value"), SINGLE, ids=[f"{name}={value}" for name, value in SINGLE])
def test_after_any_knob_and_an_error_inside_everything_is_as_before(objects, name, value, monkeypatch) -> None:
    if name == "binding":
        own = tuple(sorted(os.sched_getaffinity(0)))
        monkeypatch.setenv(VARIABLE, AffinityPlan(own, (Affinity(own, own),)).text)
    before, state = Snapshot(*objects.all), process_state()
    with pytest.raises(ZeroDivisionError), Session(settings(name, value), device="cpu", level="max") as session:  # noqa: PT012
        prepared = session.prepare(*objects.all)
        objects.step(*prepared, session.backward)
        changed = [*before.changes(), *differences(state, process_state())]
        refused = {name, *TOGETHER.get(name, {})} & dict(session.not_applied).keys()
        assert changed or refused or name in ("malloc", "interop_threads", "binding"), "it does something"
        divmod(1, 0)
    assert before.changes() == []
    assert differences(state, process_state()) == []


def test_two_sessions_at_once_leave_nothing_behind(objects: Objects) -> None:
    """Whichever ends first."""
    before, state = Snapshot(*objects.all), process_state()
    every = quiet(batch_size=4, channels_last=True, num_workers=1, optimizer_impl="fused", precision="bf16", threads=3)
    for first in (0, 1):
        sessions = [Session(every, device="cpu"), Session(every, device="cpu")]
        for session in sessions:
            session.prepare(*objects.all)
        objects.step(*objects.all)
        sessions[first].close()
        sessions[1 - first].close()
        assert before.changes() == []
        assert differences(state, process_state()) == []


def test_what_the_user_changes_meanwhile_stays(objects: Objects) -> None:
    with prepared(objects.loader, batch_size=4, num_workers=2):
        objects.loader.num_workers = 0
        objects.loader.collate_fn = list
    assert (objects.loader.num_workers, objects.loader.prefetch_factor) == (0, None)
    assert objects.loader.collate_fn is list


def test_a_session_that_cannot_begin_leaves_nothing() -> None:
    state = process_state()
    broken = mock.patch("autotune.knobs.precision.Precision.__init__", side_effect=RuntimeError("no such switch"))
    with broken, pytest.raises(RuntimeError, match="no such switch"):
        Session(quiet(threads=torch.get_num_threads() + 1, precision="bf16"), device="cpu")
    assert differences(state, process_state()) == []
