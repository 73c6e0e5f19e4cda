"""Weights in channels_last: outputs stay what they are, and what shares its memory is left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from autotune.runtime.session import Session
from tests.torch.records import quiet


def laid_out(model: nn.Module) -> bool:
    return any(p.dim() == 4 and not p.is_contiguous() for p in model.parameters())


class Tied(nn.Module):
    """Two convolutions whose weights share their memory through ``.data``."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3)
        self.second.weight.data = self.first.weight.data

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


class Flat(nn.Module):
    """All parameters are views of one vector, as some optimizers and averagers have it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.vector = torch.cat([p.detach().flatten() for p in self.parameters()])
        start = 0
        for parameter in self.parameters():
            parameter.data = self.vector[start : start + parameter.numel()].view(parameter.shape)
            start += parameter.numel()


def shared(model: nn.Module) -> nn.Module:
    """As a Hogwild parent's."""
    return model.share_memory()


def chosen(model: nn.Module) -> nn.Module:
    """Laid out by its user."""
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def expanded() -> nn.Module:
    model = nn.Conv2d(3, 4, 3)
    model.register_buffer("scale", torch.ones(1).expand(4, 4, 4, 4))
    return model


LEFT_ALONE: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "no convolution": (lambda: nn.Linear(2, 2), "no two-dimensional convolutions"),
    "lazy layer": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.LazyConv2d(4, 3)), "first batch"),
    "lazy norm": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.LazyBatchNorm2d(affine=False)), "first batch"),
    "tied": (Tied, "share their memory"),
    "views of a vector": (Flat, "share their memory"),
    "Hogwild": (lambda: shared(nn.Conv2d(3, 4, 3)), "share their memory"),
    "expanded buffer": (expanded, "share their memory"),
}


@pytest.mark.parametrize(("make", "words"), LEFT_ALONE.values(), ids=LEFT_ALONE)
def test_what_cannot_be_laid_out_otherwise_is_left_alone(make: Callable[[], nn.Module], words: str) -> None:
    model = make()
    before = [(p, p.data_ptr()) for p in model.parameters() if not nn.parameter.is_lazy(p)]
    with Session(quiet(channels_last=True), device="cpu") as session:
        session.prepare(model)
        assert words in dict(session.not_applied)["channels_last"]
        assert all(p.data_ptr() == place for p, place in before)


def test_a_model_that_the_user_has_laid_out_is_the_users() -> None:
    model = chosen(nn.Conv2d(3, 4, 3))
    with Session(quiet(channels_last=True), device="cpu") as session:
        session.prepare(model)
        assert session.not_applied == ()
    assert laid_out(model)


class Normalises(nn.Module):
    """Changes its input in place, draws, and counts: a second forward pass would show."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.drop, self.head = nn.Conv2d(3, 4, 3), nn.Dropout(0.5), nn.Linear(4 * 36, 2)
        self.calls, self.noise = 0, torch.Generator().manual_seed(1)

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        x.sub_(0.5).mul_(2.0 + 0.01 * self.calls)
        hidden = self.conv(x).flatten(1) + torch.randn((), generator=self.noise)
        return self.head(self.drop(hidden))


class Function(torch.autograd.Function):
    """A user's own, which views what it gets."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        context.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        (x,) = context.saved_tensors
        return gradient.reshape(x.shape)


def hooked() -> nn.Module:
    """Hooks of the user's look at activations and gradients."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2))
    seen: list[float] = []
    model[0].register_forward_hook(lambda _m, _i, output: seen.append(output.flatten(1).sum().item()))
    model[1].register_full_backward_hook(lambda _m, _gi, go: seen.append(go[0].flatten(1).sum().item()))
    model.seen = seen  # type: ignore[assignment]
    return model


@pytest.mark.parametrize("make", [Normalises, hooked])
@pytest.mark.parametrize("freed", [False, True], ids=["training", "evaluation first"])
def test_forward_runs_once_and_gives_the_same(make: Callable[[], nn.Module], freed: bool) -> None:
    found = []
    for channels_last in (False, True):
        model = make()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with Session(quiet(channels_last=channels_last), device="cpu") as session:
            session.prepare(model, optimizer)
            torch.manual_seed(3)
            if freed:
                model.eval()(torch.rand(2, 3, 8, 8))
                model.train()
            for _ in range(3):
                outputs = model(torch.rand(2, 3, 8, 8))
                Function.apply(outputs).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            assert laid_out(model) is channels_last
        assert not laid_out(model), "and back again"
        found.append([*model.state_dict().values(), outputs, torch.get_rng_state().float(), getattr(model, "calls", 0)])
    for plain, ours in zip(*found, strict=True):
        torch.testing.assert_close(plain, ours, rtol=1e-4, atol=1e-5)


def test_state_dicts_are_the_users_to_edit() -> None:
    """In-place edits reach the model and the optimizer."""
    model = nn.Conv2d(3, 4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with Session(quiet(channels_last=True), device="cpu") as session:
        session.prepare(model, optimizer)
        model(torch.ones(1, 3, 4, 4)).sum().backward()
        optimizer.step()
        for value in (*model.state_dict().values(), *(s["momentum_buffer"] for s in optimizer.state_dict()["state"].values())):
            value.zero_()
        assert not any(p.any() for p in model.parameters())
        assert not any(s["momentum_buffer"].any() for s in optimizer.state.values())


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["model first", "optimizer first"])
def test_the_users_own_fused_optimizer_keeps_the_usual_layout(order: tuple[int, int]) -> None:
    model = nn.Conv2d(3, 4, 3)
    items = model, torch.optim.Adam(model.parameters(), fused=True)
    with Session(quiet(channels_last=True), device="cpu") as session:
        for place in order:
            session.prepare(items[place])
        assert "fused kernel" in dict(session.not_applied)["channels_last"]
        assert not laid_out(model)
