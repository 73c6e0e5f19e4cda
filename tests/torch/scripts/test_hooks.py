"""Hooks see what a script trains with, and nobody sees the hooks."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.utils.data import DataLoader, TensorDataset

from autotune.scripts.hooks import Begin, Hooks, Listener
from tests.torch.conftest import differences, process_state

BATCH = torch.ones(1, 2)


class Written(Listener):
    """Writes down what it is called with."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []

    def iterates(self, loader: DataLoader[Any], begin: Begin) -> Iterator[Any]:
        self.seen.append(("iterates", loader))
        return begin()

    def calls(self, model: nn.Module) -> None:
        self.seen.append(("calls", model))

    def goes_backward(self, loss: Tensor) -> None:
        self.seen.append(("backward", loss.item()))

    def steps(self, optimizer: Optimizer) -> None:
        self.seen.append(("steps", optimizer))

    @property
    def words(self) -> list[str]:
        return [word for word, _ in self.seen]


@pytest.fixture
def hooks() -> Iterator[Hooks]:
    """Hooks that are in force; that all is put back after each test is checked by this folder's conftest."""
    before, found = process_state(), Hooks(Written())
    found.install()
    found.look_at_calls()
    assert differences(before, process_state())
    yield found
    found.remove()


def loader() -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=4)


class TestSeen:
    def test_a_training_loop(self, hooks: Hooks) -> None:
        model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
        optimizer = SGD(model.parameters(), lr=0.1)
        for (batch,) in loader():
            model(batch).mean().backward()
            optimizer.step()
        assert hooks.listener.words == ["iterates", *["calls", "backward", "steps"] * 2]
        assert hooks.optimizers == [optimizer]

    @pytest.mark.parametrize(
        ("act", "words"),
        [
            (lambda hooks, model: model(BATCH), ["calls"]),  # only the outermost
            (lambda hooks, model: torch.no_grad()(model)(BATCH), []),
            (lambda hooks, model: model.eval()(BATCH), []),
            (lambda hooks, model: torch.autograd.backward(BATCH.clone().requires_grad_().sum()), ["backward"]),
            (lambda hooks, model: hooks.unseen(lambda: [model(batch) for (batch,) in loader()]), []),
        ],
        ids=["forward", "without gradients", "evaluation", "backward by function", "unseen"],
    )
    def test_training_alone(self, hooks: Hooks, act: Callable[[Hooks, nn.Module], Any], words: list[str]) -> None:
        model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
        act(hooks, model)
        assert hooks.listener.words == words
        assert all(what is model for word, what in hooks.listener.seen if word == "calls")

    def test_threads_that_the_script_sets(self, hooks: Hooks) -> None:
        assert hooks.threads is None
        torch.set_num_threads(torch.get_num_threads())
        assert hooks.threads == torch.get_num_threads()
        assert re.fullmatch(rf"torch.set_num_threads\({hooks.threads}\) \(test_hooks.py:\d+\)", hooks.threads_set)

    def test_threads_wait_until_it_trains(self, hooks: Hooks) -> None:
        before = torch.get_num_threads()
        hooks.threads_wait = True
        torch.set_num_threads(before + 7)
        assert (torch.get_num_threads(), hooks.threads) == (before + 7, before + 7)  # as it sees them
        assert hooks.unseen(torch.get_num_threads) == before
        with pytest.raises(RuntimeError):
            torch.set_num_threads(0)


def test_a_script_sets_inter_op_threads_that_a_trial_has_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def once(_number: int) -> None:
        raise RuntimeError("cannot set number of interop threads after parallel work has started")

    monkeypatch.setattr(torch, "set_num_interop_threads", once)
    hooks = Hooks(Written())
    hooks.install()
    try:
        torch.set_num_interop_threads(3)
    finally:
        hooks.remove()
    assert hooks.interop_threads == torch.get_num_interop_threads()  # what is in force


class TestUnseen:
    def test_no_call_is_looked_at_once_the_script_compiles(self, hooks: Hooks) -> None:
        compiled = torch.compile(nn.Linear(2, 1), backend="eager")
        compiled(torch.ones(1, 2))
        hooks.look_at_calls()
        nn.Linear(2, 1)(torch.ones(1, 2))
        assert hooks.compiles
        assert hooks.listener.seen == []
