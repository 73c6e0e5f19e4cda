"""A prepared model stays the user's own object: seen from outside, only its call has changed."""

import copy
import pickle
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn

from autotune.knobs import compile as compiling
from autotune.knobs.model_call import SLOT
from autotune.runtime.session import Session
from tests.torch.records import network, prepared, quiet


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))],
    ids=["copy", "deep", "pickle"],
)
def test_only_the_call_changes_and_copies_are_plain_models(copied: Any) -> None:
    model = network()
    before, optimizer = vars(model).copy(), torch.optim.SGD(model.parameters(), lr=0.1)
    with prepared(model, optimizer, compile="default", precision="bf16") as session:
        assert type(model) is nn.Sequential
        assert {name: value for name, value in vars(model).items() if name != SLOT} == before
        session.backward(model(torch.ones(1, 8)).sum())
        optimizer.step()
        twin = copied(model)
        assert SLOT not in vars(twin)
        assert b"autotune" not in pickle.dumps(model)
        torch.testing.assert_close(twin(torch.ones(1, 8)), model(torch.ones(1, 8)), rtol=0.02, atol=0.02)
        twin.load_state_dict(model.state_dict(), strict=True)


def test_a_compiled_model_runs_in_another_precision() -> None:
    """And the graph that is compiled holds it."""
    model, seen = network(), list[torch.dtype]()

    def backend(graph: Any, _inputs: Any) -> Any:
        def run(*inputs: Any) -> Any:
            outputs = graph(*inputs)
            seen.extend(output.dtype for output in outputs)
            return outputs

        return run

    with (
        mock.patch.object(compiling, "BACKEND", backend),
        Session(quiet(compile="default", precision="bf16"), device="cpu") as session,
    ):
        session.prepare(model)
        for _ in range(2):
            assert model(torch.ones(2, 8)).dtype is torch.float32
        assert session.not_applied == ()
    assert seen == [torch.bfloat16] * 2


class Keeps(nn.Module):
    """A model whose loop reads an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(8, 4), nn.Linear(4, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.features = self.body(inputs)
        return self.head(self.features)


def test_a_model_that_keeps_what_it_computes_stays_in_its_own_precision() -> None:
    model = Keeps()
    with prepared(model, precision="bf16") as session:
        for _ in range(2):
            output = model(torch.ones(2, 8))
            assert "keeps features" in dict(session.not_applied)["precision"]
            assert (model.features.dtype, output.dtype) == (torch.float32, torch.float32)
            (output.sum() + model.features.sum()).backward()
    assert SLOT not in vars(model)
