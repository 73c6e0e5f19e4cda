"""The update as foreach or fused: the same training and flags. Checkpoints stand in `tests.same_training`."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from autotune.runtime.session import Session
from tests.torch.records import quiet

KINDS = ["SGD", "Adam", "AdamW", "Adagrad"]
OPTIONS: dict[str, Any] = {"SGD": {"momentum": 0.9}}


def made(kind: str, model: nn.Module, **options: Any) -> torch.optim.Optimizer:
    """An optimizer of class ``kind``."""
    optimizer: torch.optim.Optimizer = getattr(torch.optim, kind)(
        model.parameters(), lr=0.1, **OPTIONS.get(kind, {}), **options
    )
    return optimizer


def conv() -> nn.Module:
    """A convolution with square kernels, always the same: its memory is another in channels_last."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 1))


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, count: int) -> None:
    """Train for ``count`` steps."""
    random = torch.Generator().manual_seed(5)
    for _ in range(count):
        model(torch.randn(2, 3, 4, 4, generator=random)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def same(ours: nn.Module, plain: nn.Module) -> None:
    """The same parameters, as far as rounding lets them be."""
    for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def flags(optimizer: torch.optim.Optimizer) -> list[Any]:
    return [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("implementation", ["foreach", "fused"])
def test_it_is_in_force_inside_a_step_only(kind: str, implementation: str) -> None:
    ours, plain, seen = conv(), conv(), []
    optimizer, reference = made(kind, ours), made(kind, plain)
    optimizer.register_step_pre_hook(lambda o, *_: seen.append(o.param_groups[0][implementation]))
    optimizer.register_step_post_hook(lambda o, *_: seen.append(o.state_dict()["param_groups"][0][implementation]))
    with Session(quiet(optimizer_impl=implementation), device="cpu") as session:
        assert session.prepare(optimizer) is optimizer
        steps(ours, optimizer, 3)
        assert "optimizer_impl" not in dict(session.not_applied)
    steps(plain, reference, 3)
    assert not any(seen), "hooks and checkpoints of the user's see the user's own flags"
    assert flags(optimizer) == flags(reference)
    same(ours, plain)


@pytest.mark.parametrize(("implementation", "kernel"), [("foreach", "_foreach_"), ("fused", "_fused_adam")])
def test_the_kernel_is_really_used(implementation: str, kernel: str) -> None:
    model = conv()
    optimizer = made("Adam", model)
    with Session(quiet(optimizer_impl=implementation), device="cpu") as session, torch.profiler.profile() as profiled:
        session.prepare(optimizer)
        steps(model, optimizer, 1)
    assert any(kernel in event.key for event in profiled.key_averages())


def transposed(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Gradients that lie in memory unlike their parameters."""
    random = torch.Generator().manual_seed(3)
    for _ in range(3):
        for parameter in model.parameters():
            turned = torch.randn(tuple(reversed(parameter.shape)), generator=random)
            parameter.grad = turned.permute(*reversed(range(turned.dim())))
        optimizer.step()


def tensor_rate(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """A learning rate that becomes a tensor."""
    steps(model, optimizer, 1)
    for group in optimizer.param_groups:
        group["lr"] = torch.tensor(5e-3)
    steps(model, optimizer, 2)


def own_scaler(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(2, 3, 4, 4)).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()


def reloaded(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    steps(model, optimizer, 2)
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    steps(model, optimizer, 1)


def raises_once(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """A step that fails and is caught leaves the user's flags."""

    def fail(*_: Any) -> None:
        raise ValueError

    before = flags(optimizer)
    handle = optimizer.register_step_pre_hook(fail)
    with pytest.raises(ValueError):
        optimizer.step()
    handle.remove()
    assert flags(optimizer) == before
    steps(model, optimizer, 2)


Loop = Callable[[nn.Module, torch.optim.Optimizer], None]
Make = Callable[[nn.Module], torch.optim.Optimizer]
HARD: dict[str, tuple[Make, Loop]] = {
    "gradients laid out otherwise": (lambda m: made("Adam", m), transposed),
    "tensor rate": (lambda m: made("Adam", m), tensor_rate),
    "tensor betas": (
        lambda m: torch.optim.AdamW(m.parameters(), betas=(torch.tensor(0.9), torch.tensor(0.99))),
        reloaded,
    ),
    "a scaler of the user's": (lambda m: made("Adam", m, fused=True), own_scaler),
    "a failing step": (lambda m: made("Adam", m), raises_once),
}


@pytest.mark.parametrize(("make", "loop"), HARD.values(), ids=HARD)
@pytest.mark.parametrize(("implementation", "channels_last"), [("foreach", False), ("fused", False), ("fused", True)])
def test_hard_cases_train_as_in_plain(make: Make, loop: Loop, implementation: str, channels_last: bool) -> None:
    plain, ours = conv(), conv()
    loop(plain, make(plain))
    optimizer = make(ours)
    with Session(quiet(optimizer_impl=implementation, channels_last=channels_last), device="cpu") as session:
        session.prepare(ours, optimizer)
        loop(ours, optimizer)
    same(ours, plain)


@pytest.mark.parametrize(
    ("make", "wanted", "words"),
    [
        (lambda m: torch.optim.LBFGS(m.parameters()), "fused", "LBFGS has no fused implementation"),
        (lambda m: torch.optim.Adam(m.parameters(), differentiable=True), "fused", "differentiable=True rules out"),
        (lambda m: torch.optim.Adam([*m.parameters(), nn.UninitializedParameter()]), "fused", "lazy or not floating"),
        (
            lambda m: torch.optim.AdamW(m.parameters(), betas=(torch.tensor(0.9), torch.tensor(0.99))),
            "foreach",
            "as a Tensor is not supported",
        ),
    ],
)
def test_what_an_optimizer_does_not_do_is_named(make: Make, wanted: str, words: str) -> None:
    optimizer = make(conv())
    with Session(quiet(optimizer_impl=wanted), device="cpu") as session:
        session.prepare(optimizer)
        assert words in dict(session.not_applied)["optimizer_impl"]


def test_fused_keeps_away_from_a_default_of_float64(request: pytest.FixtureRequest) -> None:
    request.addfinalizer(lambda: torch.set_default_dtype(torch.float32))
    torch.set_default_dtype(torch.float64)
    optimizer = made("Adam", conv())
    with Session(quiet(optimizer_impl="fused"), device="cpu") as session:
        session.prepare(optimizer)
        assert "float64" in dict(session.not_applied)["optimizer_impl"]


@pytest.mark.parametrize("layers", [(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 8, 1)), (nn.Conv2d(3, 4, 1),)])
def test_weights_with_a_dimension_of_one_may_have_the_fused_update(layers: tuple[nn.Module, ...]) -> None:
    model = nn.Sequential(*layers)
    optimizer = made("Adam", model)
    with Session(quiet(optimizer_impl="fused", channels_last=True), device="cpu") as session:
        session.prepare(model, optimizer)
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(2, layers[0].in_channels, 8, 8)).mean().backward()
            optimizer.step()
        assert session.not_applied == ()


def test_a_copied_optimizer_is_plain() -> None:
    model = conv()
    optimizer = made("Adam", model)
    with Session(quiet(optimizer_impl="fused", channels_last=True), device="cpu") as session:
        session.prepare(model, optimizer)
        steps(model, optimizer, 1)
        twin = copy.deepcopy(optimizer)
        assert flags(twin) == flags(made("Adam", model))
        assert b"autotune" not in pickle.dumps(optimizer.state_dict())
