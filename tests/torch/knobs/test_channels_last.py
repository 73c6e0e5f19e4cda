"""Weights in channels_last, and back. What is left alone stands in `tests/torch/runtime/test_habits`."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from autotune.runtime.session import Session
from tests.torch.records import quiet


def laid_out(model: nn.Module) -> bool:
    return any(p.dim() == 4 and not p.is_contiguous() for p in model.parameters())


def chosen(model: nn.Module) -> nn.Module:
    """Laid out by its user."""
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def test_a_model_that_the_user_has_laid_out_is_the_users() -> None:
    model = chosen(nn.Conv2d(3, 4, 3))
    with Session(quiet(channels_last=True), device="cpu") as session:
        session.prepare(model)
        assert session.not_applied == ()
    assert laid_out(model)


def test_weights_gradients_and_momentum_are_laid_out_and_back() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.rand(2, 3, 4, 4)).sum().backward()
    before, gradient = model[0].weight.detach().clone(), model[0].weight.grad.clone()
    with Session(quiet(channels_last=True), device="cpu") as session:
        session.prepare(model, optimizer)
        assert laid_out(model)
        assert model[0].weight.grad.stride() == model[0].weight.stride()
        assert torch.equal(model[0].weight, before)
        assert torch.equal(model[0].weight.grad, gradient)
        optimizer.step()
        model(torch.rand(2, 3, 4, 4)).sum().backward()
    assert not laid_out(model)
    assert model[0].weight.grad.is_contiguous()
    optimizer.step()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["model first", "optimizer first"])
def test_the_users_own_fused_optimizer_keeps_the_usual_layout(order: tuple[int, int]) -> None:
    model = nn.Conv2d(3, 4, 3)
    items = model, torch.optim.Adam(model.parameters(), fused=True)
    with Session(quiet(channels_last=True), device="cpu") as session:
        for place in order:
            session.prepare(items[place])
        assert "fused kernel" in dict(session.not_applied)["channels_last"]
        assert not laid_out(model)
