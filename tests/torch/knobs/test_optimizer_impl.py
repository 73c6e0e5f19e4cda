"""The update as foreach or fused: the same training and checkpoints."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from autotune.runtime.session import Session
from tests.torch.records import prepared, quiet

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


class Reading(torch.optim.Adam):
    """An optimizer of the user's whose step may read the flags."""


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


@pytest.mark.parametrize("again", [copy.deepcopy, lambda optimizer: pickle.loads(pickle.dumps(optimizer))])
def test_copies_are_as_without_a_session(again: Callable[[Any], Any]) -> None:
    ours, plain = conv(), conv()
    optimizer, reference = made("Adam", ours), made("Adam", plain)
    steps(plain, reference, 2)
    with prepared(optimizer, optimizer_impl="fused"):
        steps(ours, optimizer, 2)
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))]})
        twin = again(optimizer)
        assert optimizer.param_groups[0]["fused"], "the original trains on as it did"
    assert twin.param_groups[0].keys() == reference.param_groups[0].keys()
    assert [group["fused"] for group in twin.param_groups] == [None, None]
    assert twin.state_dict()["state"].keys() == reference.state_dict()["state"].keys()
    assert vars(twin).keys() == vars(again(reference)).keys()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("implementation", ["foreach", "fused"])
def test_state_dicts_hold_the_users_flags_and_close_puts_them_back(kind: str, implementation: str) -> None:
    ours, plain, saved = conv(), conv(), list[Any]()
    optimizer, reference = made(kind, ours), made(kind, plain)
    optimizer.register_state_dict_post_hook(lambda _o, state: saved.append(state["param_groups"][0][implementation]))
    with Session(quiet(optimizer_impl=implementation), device="cpu") as session:
        assert session.prepare(optimizer) is optimizer
        for _ in range(2):
            steps(ours, optimizer, 2)
            assert optimizer.param_groups[0][implementation] is True
            state = optimizer.state_dict()
            optimizer.load_state_dict(copy.deepcopy(state))
            optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
        assert session.not_applied == ()
    assert saved == [reference.param_groups[0][implementation]] * 2
    for _ in range(2):
        steps(plain, reference, 2)
    ours_now, plain_now = ({**each.param_groups[0], "params": []} for each in (optimizer, reference))
    assert ours_now == plain_now
    assert "step" not in state["state"][0] or state["state"][0]["step"].item() == 4
    assert not optimizer._optimizer_step_pre_hooks
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


def other_layout(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Weights that go into NHWC when they have state."""
    steps(model, optimizer, 2)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    steps(model, optimizer, 2)


def trains_later(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """A bias that has no momentum when the others have it."""
    model[0].bias.requires_grad_(False)  # type: ignore[index]
    steps(model, optimizer, 1)
    model[0].bias.requires_grad_(True)  # type: ignore[index]
    steps(model, optimizer, 2)


def closure(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    steps(model, optimizer, 1)

    def again() -> float:
        for parameter in model.parameters():
            parameter.grad = torch.ones(parameter.shape[::-1]).permute(*reversed(range(parameter.dim())))
        return 0.0

    optimizer.step(again)


Loop = Callable[[nn.Module, torch.optim.Optimizer], None]
Make = Callable[[nn.Module], torch.optim.Optimizer]
HARD: dict[str, tuple[Make, Loop]] = {
    "gradients laid out otherwise": (lambda m: made("Adam", m), transposed),
    "tensor rate": (lambda m: made("Adam", m), tensor_rate),
    "tensor betas": (
        lambda m: torch.optim.AdamW(m.parameters(), betas=(torch.tensor(0.9), torch.tensor(0.99))),
        reloaded,
    ),
    "a scaler of the user's": (lambda m: made("Adam", m), own_scaler),
    "another layout": (lambda m: made("Adam", m), other_layout),
    "momentum that comes later": (lambda m: made("SGD", m), trains_later),
    "a closure": (lambda m: made("Adam", m), closure),
    "an optimizer that is fused": (lambda m: made("Adam", m, fused=True), own_scaler),
}


@pytest.mark.parametrize(("make", "loop"), HARD.values(), ids=HARD)
@pytest.mark.parametrize("implementation", ["foreach", "fused"])
def test_hard_cases_train_as_in_plain(make: Make, loop: Loop, implementation: str) -> None:
    plain, ours = conv(), conv()
    loop(plain, make(plain))
    optimizer = make(ours)
    with prepared(ours, optimizer, optimizer_impl=implementation):
        loop(ours, optimizer)
    same(ours, plain)


@pytest.mark.parametrize(
    ("make", "wanted", "words"),
    [
        (lambda m: Reading(m.parameters()), "fused", "Reading is not an optimizer of PyTorch's own"),
        (lambda m: made("Adam", m, fused=True), "foreach", "built with fused=True"),
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
    with prepared(optimizer, optimizer_impl=wanted) as session:
        assert words in dict(session.not_applied)["optimizer_impl"]


def test_fused_keeps_away_from_a_default_of_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_default_dtype", lambda: torch.float64)
    optimizer = made("Adam", conv())
    with prepared(optimizer, optimizer_impl="fused") as session:
        assert "float64" in dict(session.not_applied)["optimizer_impl"]
