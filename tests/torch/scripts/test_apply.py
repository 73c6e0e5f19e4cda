"""Settings applied to a running script give the same training, and reach what is trained with alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from autotune.knobs.fingerprint import Fingerprint
from autotune.knobs.settings import Settings
from autotune.runtime import fingerprints
from autotune.runtime.session import Session
from autotune.scripts.apply import Applied, Order, SharedBatch

BASELINE = Settings(batch_size=4, threads=torch.get_num_threads())
TUNED = BASELINE.but(num_workers=1, optimizer_impl="fused")
Begin = Callable[..., Applied]


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(24, 3, generator=generator), torch.randn(24, 1, generator=generator))


def parts() -> tuple[nn.Module, Optimizer, DataLoader[Any]]:
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    return model, AdamW(model.parameters(), lr=0.1), DataLoader(data(), batch_size=4)


def compared() -> Fingerprint:
    """What tuning has seen of `parts`."""
    model, optimizer, loader = parts()
    return Fingerprint(
        (fingerprints.of_model(model),), (fingerprints.of_optimizer(optimizer),), (fingerprints.of_loader(loader),)
    )


def train(epochs: int = 2) -> tuple[list[float], dict[str, torch.Tensor], Optimizer, DataLoader[Any]]:
    """A loop as people write it."""
    model, optimizer, loader = parts()
    losses = []
    for _ in range(epochs):
        for inputs, targets in loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses, model.state_dict(), optimizer, loader


@pytest.fixture
def begin() -> Iterator[Begin]:
    found: list[Applied] = []

    def make(settings: Settings = TUNED, **options: Any) -> Applied:
        applied = Applied(Order(settings, BASELINE, compared(), device="cpu", **options))
        applied.install()
        found.append(applied)
        return applied

    yield make
    for applied in found:
        applied.remove()


def test_training_stays_the_same(begin: Begin) -> None:
    losses, weights, _, _ = train()
    applied = begin()
    again, found, _, loader = train()
    assert again == pytest.approx(losses, rel=1e-5)
    for name, value in weights.items():
        torch.testing.assert_close(found[name], value)
    assert applied.session.not_applied == ()
    assert loader.num_workers == 1


def test_what_tuning_has_not_compared_is_left_alone(begin: Begin) -> None:
    begin()
    model = nn.Linear(3, 2)
    optimizer = SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.ones(8, 3)), batch_size=2, shuffle=True)
    for (inputs,) in loader:
        model(inputs).mean().backward()
        optimizer.step()
    assert loader.num_workers == 0
    assert not optimizer.param_groups[0]["fused"]


def test_loaders_of_an_evaluation_are_left_alone(begin: Begin) -> None:
    begin()
    loader = parts()[2]
    with torch.no_grad():
        list(loader)
    assert loader.num_workers == 0


def test_nothing_is_installed_if_nothing_differs(begin: Begin) -> None:
    before = DataLoader.__iter__
    begin(BASELINE)
    assert DataLoader.__iter__ is before


def test_everything_is_put_back(begin: Begin) -> None:
    before = DataLoader.__iter__, DataLoader.__init__
    applied = begin()
    loader = train()[3]
    applied.remove()
    assert (DataLoader.__iter__, DataLoader.__init__) == before
    assert loader.num_workers == 0


def test_a_stream_without_a_length(begin: Begin) -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter(torch.ones(8, 3))

    begin()
    loader = DataLoader(Stream(), batch_size=4)
    assert [len(list(loader)) for _ in range(2)] == [2, 2]


def test_a_failure_leaves_the_script_as_it_is(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    losses = train()[0]

    def broken(*_: object, **__: object) -> None:
        raise ValueError("broken")

    begin()
    monkeypatch.setattr(Session, "prepare", broken)
    assert train()[0] == losses
    assert "the script runs as it is: ValueError: broken" in caplog.text


def test_an_order_survives_the_environment() -> None:
    order = Order(TUNED, BASELINE, compared(), "safe", "cpu", SharedBatch(8, 4, 24))
    assert Order.from_text(order.as_text()) == order
