"""A prepared model stays the user's own object: seen from outside, only its call has changed."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections import defaultdict
from typing import Any

import pytest
import torch
from autotune.runtime.appliers import compile as compiling
from torch import nn

from autotune.runtime import calls
from autotune.runtime.session import Session

from .records import network, quiet

SETTINGS = [{"precision": "bf16"}, {"compile": "default"}, {"compile": "default", "precision": "bf16"}]


class Named(nn.Module):
    """A model whose argument names matter to libraries."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, input_values: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        """Scaled output of a small network."""
        return self.inner(input_values) * scale

    def __getstate__(self) -> dict[str, Any]:  # a class of the user's that copies everything it holds
        return dict(vars(self))


@pytest.fixture(autouse=True)
def _quick_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "BACKEND", "eager")


@pytest.mark.parametrize("changes", SETTINGS)
def test_signature_names_and_methods_are_the_users_own(changes: dict[str, Any]) -> None:
    model = Named()
    before = inspect.getfullargspec(model.forward), list(model.state_dict()), model.forward.__func__
    with Session(quiet(**changes), device="cpu") as session:
        assert session.prepare(model) is model
        after = inspect.getfullargspec(model.forward), list(model.state_dict()), model.forward.__func__
        assert after == before
        assert model(torch.ones(2, 8), scale=2.0).dtype is torch.float32


@pytest.mark.parametrize("changes", SETTINGS)
@pytest.mark.parametrize(
    ("make", "copied"),
    [
        (network, copy.copy),
        (network, copy.deepcopy),
        (Named, copy.deepcopy),
        (Named, lambda model: pickle.loads(pickle.dumps(model))),
    ],
)
def test_copies_are_plain_models(changes: dict[str, Any], copied: Any, make: Any) -> None:
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Session(quiet(**changes), device="cpu") as session:
        session.prepare(model, optimizer)
        session.backward(model(torch.ones(1, 8)).sum())
        optimizer.step()
        twin = copied(model)
        assert calls.current(twin) == twin._call_impl
        assert b"autotune" not in pickle.dumps(network() if make is Named else model)
        torch.testing.assert_close(twin(torch.ones(1, 8)), model(torch.ones(1, 8)), rtol=0.02, atol=0.02)


def test_closing_puts_the_call_back() -> None:
    model = network()
    with Session(quiet(precision="bf16"), device="cpu") as session:
        session.prepare(model)
        assert isinstance(calls.current(model), calls.Autocast)
    assert calls.current(model) == model._call_impl


def test_a_model_that_its_user_compiles_keeps_its_graph() -> None:
    model = network()
    model.compile(backend="eager")
    own = calls.current(model)
    with Session(quiet(precision="bf16", compile="default"), device="cpu") as session:
        session.prepare(model)
        layer = calls.current(model)
        assert isinstance(layer, calls.Autocast)
        assert layer.call is own
        assert model(torch.ones(1, 8)).dtype is torch.float32


def test_a_compiled_wrapper_runs_in_the_sessions_precision() -> None:
    seen: list[torch.dtype] = []
    inner = network()
    inner[0].register_forward_hook(lambda module, received, output: seen.append(output.dtype))
    with Session(quiet(precision="bf16"), device="cpu") as session:
        model = session.prepare(torch.compile(inner, backend="eager"))
        assert model(torch.ones(1, 8)).dtype is torch.float32
        assert session.unwrap(model) is inner
    assert seen == [torch.bfloat16]


class Record(dict[str, Any]):
    """A user's container with a constructor of its own."""

    def __init__(self, config: int, **items: Any) -> None:
        super().__init__(**items)
        self.config = config


class Pair(tuple[Any, ...]):
    """A user's tuple with a constructor of its own."""

    __slots__ = ()

    def __new__(cls, first: Any, second: Any) -> Pair:
        """Two items."""
        return super().__new__(cls, (first, second))


def test_containers_of_the_users_keep_what_they_hold() -> None:
    half = torch.ones(2, dtype=torch.bfloat16)
    record = calls.to_float32(Record(7, z=half))
    assert (type(record), record.config, record["z"].dtype) == (Record, 7, torch.float32)
    default = calls.to_float32(defaultdict(list, z=half))
    assert (default["new"], default["z"].dtype) == ([], torch.float32)
    pair = Pair(half, 1)
    assert calls.to_float32(pair) is pair


def test_a_model_of_lower_precision_keeps_its_outputs() -> None:
    with Session(quiet(precision="bf16"), device="cpu") as session:
        model = session.prepare(network().to(torch.bfloat16))
        assert model(torch.ones(1, 8, dtype=torch.bfloat16)).dtype is torch.bfloat16
