"""What a script trains with is seen, and nothing of the watch is."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from autotune.script.watch import Begin, Watch, Watcher, trains
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.utils.data import DataLoader, TensorDataset


class Written(Watcher):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def iterates(self, loader: DataLoader[Any], begin: Begin) -> Iterator[Any]:
        self.told.append(("iterates", loader))
        return begin()

    def calls(self, model: nn.Module) -> None:
        self.told.append(("calls", model))

    def goes_backward(self, loss: Tensor) -> None:
        self.told.append(("backward", loss.item()))

    def steps(self, optimizer: Optimizer) -> None:
        self.told.append(("steps", optimizer))

    @property
    def words(self) -> list[str]:
        return [word for word, _ in self.told]


@pytest.fixture
def watch() -> Iterator[Watch]:
    found = Watch(Written())
    found.install()
    yield found
    found.remove()


def loader() -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=4)


class TestSeen:
    def test_a_training_loop(self, watch: Watch) -> None:
        model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
        optimizer = SGD(model.parameters(), lr=0.1)
        for (batch,) in loader():
            model(batch).mean().backward()
            optimizer.step()
        assert watch.watcher.words == ["iterates", *["calls", "backward", "steps"] * 2]
        assert watch.optimizers == [optimizer]
        assert trains(model, watch.optimizers)
        assert not trains(nn.Linear(2, 1), watch.optimizers)

    def test_only_the_outermost_model(self, watch: Watch) -> None:
        model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
        model(torch.ones(1, 2))
        assert watch.watcher.told == [("calls", model)]

    def test_no_evaluation(self, watch: Watch) -> None:
        model = nn.Linear(2, 1)
        with torch.no_grad():
            model(torch.ones(1, 2))
        model.eval()(torch.ones(1, 2))
        assert watch.watcher.told == []

    def test_an_optimizer_that_is_gone_is_forgotten(self, watch: Watch) -> None:
        SGD([torch.ones(1, requires_grad=True)], lr=0.1)
        assert watch.optimizers == []

    def test_threads_that_the_script_sets(self, watch: Watch) -> None:
        assert watch.threads is None
        torch.set_num_threads(torch.get_num_threads())
        assert watch.threads == torch.get_num_threads()

    def test_backward_by_function(self, watch: Watch) -> None:
        torch.autograd.backward(torch.ones(1, requires_grad=True).sum())
        assert watch.watcher.told == [("backward", 1.0)]

    def test_nothing_of_what_is_done_unwatched(self, watch: Watch) -> None:
        model = nn.Linear(2, 1)
        watch.unwatched(lambda: [model(batch) for (batch,) in loader()])
        assert watch.watcher.told == []


WATCHED = [
    (DataLoader, "__iter__"),
    (Optimizer, "__init__"),
    (nn.Module, "__call__"),
    (torch.autograd, "backward"),
    (torch, "set_num_threads"),
]


class TestUnseen:
    def test_everything_is_put_back(self) -> None:
        before = [getattr(owner, name) for owner, name in WATCHED]
        found = Watch()
        found.install()
        assert all(getattr(owner, name) is not old for (owner, name), old in zip(WATCHED, before, strict=True))
        found.remove()
        assert [getattr(owner, name) for owner, name in WATCHED] == before

    def test_signatures_are_pytorchs(self, watch: Watch) -> None:
        ours = inspect.signature(Optimizer.__init__), inspect.signature(DataLoader.__iter__)
        watch.remove()
        assert (inspect.signature(Optimizer.__init__), inspect.signature(DataLoader.__iter__)) == ours

    def test_objects_hold_nothing_of_it(self, watch: Watch) -> None:
        found = loader()
        model = nn.Linear(2, 1)
        optimizer = SGD(model.parameters(), lr=0.1)
        before = set(vars(found)), set(vars(model)), set(vars(optimizer))
        for (batch,) in found:
            model(batch).mean().backward()
            optimizer.step()
        watch.remove()
        plain = loader()
        assert before == (set(vars(plain)), set(vars(nn.Linear(2, 1))), set(vars(SGD(model.parameters(), lr=0.1))))
