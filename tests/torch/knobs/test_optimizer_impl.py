"""The update as foreach or fused: the same training, checkpoints and flags, whatever the optimizer and its state."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from autotune.knobs.optimizer_impl import parameters_of
from autotune.runtime.session import Session
from tests.torch.records import quiet

KINDS = ["SGD", "Adam", "AdamW", "Adagrad"]
OPTIONS: dict[str, Any] = {"SGD": {"momentum": 0.9}}
IMPLEMENTATIONS = ["default", "foreach", "fused"]


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


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, count: int, first: int = 0) -> None:
    """Steps ``first`` to ``first + count`` of a training."""
    random = torch.Generator().manual_seed(5)
    for number in range(first + count):
        batch = torch.randn(2, 3, 4, 4, generator=random)
        if number >= first:
            model(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()


def same(ours: nn.Module, plain: nn.Module) -> None:
    """The same parameters, as far as rounding lets them be."""
    for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def flags(optimizer: torch.optim.Optimizer) -> list[Any]:
    return [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS[1:])
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


@pytest.mark.parametrize("implementation", ["foreach", "fused"])
def test_the_kernel_is_really_used(implementation: str) -> None:
    model = conv()
    optimizer = made("Adam", model)
    with Session(quiet(optimizer_impl=implementation), device="cpu") as session:
        session.prepare(optimizer)
        with torch.profiler.profile() as profiled:
            steps(model, optimizer, 1)
    names = {event.key for event in profiled.key_averages()}
    assert any("_fused_adam" in name if implementation == "fused" else "_foreach_" in name for name in names)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("own", [None, True])
def test_a_plain_checkpoint_goes_on_under_a_profile(kind: str, implementation: str, own: bool | None) -> None:
    chosen = {"fused": own} if own else {}
    plain = conv()
    reference = made(kind, plain, **chosen)
    steps(plain, reference, 3)
    checkpoint = pickle.loads(pickle.dumps((plain.state_dict(), reference.state_dict())))
    steps(plain, reference, 4, first=3)
    ours = conv()
    optimizer = made(kind, ours, **chosen)
    with Session(quiet(optimizer_impl=implementation, channels_last=True), device="cpu") as session:
        session.prepare(ours, optimizer)
        ours.load_state_dict(checkpoint[0])
        optimizer.load_state_dict(checkpoint[1])
        steps(ours, optimizer, 4, first=3)
        assert ("channels_last" in dict(session.not_applied)) is bool(own), "the user's own kernel walks raw memory"
    same(ours, plain)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_checkpoint_of_a_profile_goes_on_in_plain_pytorch(kind: str, implementation: str) -> None:
    plain, ours = conv(), conv()
    reference, optimizer = made(kind, plain), made(kind, ours)
    steps(plain, reference, 7)
    with Session(quiet(optimizer_impl=implementation, channels_last=True), device="cpu") as session:
        session.prepare(ours, optimizer)
        steps(ours, optimizer, 3)
        saved = pickle.loads(pickle.dumps((ours.state_dict(), optimizer.state_dict())))
    assert saved[1]["param_groups"] == reference.state_dict()["param_groups"]
    again = conv()
    resumed = made(kind, again)
    again.load_state_dict(saved[0])
    resumed.load_state_dict(saved[1])
    steps(again, resumed, 4, first=3)
    same(again, plain)


class Odd(torch.optim.Adam):
    """A user's own class, which is built from a model."""

    def __init__(self, model: nn.Module, warm: int) -> None:
        super().__init__(model.parameters(), lr=0.1)
        self.warm = warm


class Velocity(torch.optim.Optimizer):
    """The state of a parameter is one tensor, not a dictionary."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Momentum."""
        for p in parameters_of(self):
            if p not in self.state:
                self.state[p] = torch.zeros_like(p)
            self.state[p].mul_(0.9).add_(p.grad)
            p.sub_(self.state[p], alpha=0.1)


def transposed(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Gradients that lie in memory unlike their parameters."""
    random = torch.Generator().manual_seed(3)
    for _ in range(3):
        for parameter in model.parameters():
            turned = torch.randn(tuple(reversed(parameter.shape)), generator=random)
            parameter.grad = turned.permute(*reversed(range(turned.dim())))
        optimizer.step()


def by_closure(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3, 4, 4)).square().mean()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)  # type: ignore[arg-type]


def tensor_rate(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """A learning rate that becomes a tensor."""
    steps(model, optimizer, 1)
    for group in optimizer.param_groups:
        group["lr"] = torch.tensor(5e-3)
    steps(model, optimizer, 2)


def layouts(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """The user changes the layout, and state with it stays behind."""
    for memory_format in (torch.contiguous_format, torch.channels_last, torch.contiguous_format):
        model.to(memory_format=memory_format)  # type: ignore[call-overload]
        steps(model, optimizer, 2)


def unfrozen(model: Any, optimizer: torch.optim.Optimizer) -> None:
    """Parameters that train later have no momentum yet."""
    model[0].requires_grad_(False)
    steps(model, optimizer, 2)
    model[0].requires_grad_(True)
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
    "closure": (lambda m: made("AdamW", m), by_closure),
    "tensor rate": (lambda m: made("Adam", m), tensor_rate),
    "tensor betas": (
        lambda m: torch.optim.AdamW(m.parameters(), betas=(torch.tensor(0.9), torch.tensor(0.99))),
        reloaded,
    ),
    "layout changes": (lambda m: made("Adam", m), layouts),
    "unfreezing": (lambda m: made("SGD", m), unfrozen),
    "a scaler of the user's": (lambda m: made("Adam", m, fused=True), own_scaler),
    "state that is no dictionary": (lambda m: Velocity(m.parameters()), reloaded),
    "a user's own class": (lambda m: Odd(m, warm=1), reloaded),
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


@pytest.mark.parametrize("kind", ["SGD", "Adagrad"])
@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_sparse_gradients_train_by_the_optimizers_own_step(kind: str, implementation: str) -> None:
    found = []
    for impl in ("default", implementation):
        torch.manual_seed(0)
        table = nn.Embedding(6, 2, sparse=True)
        optimizer = getattr(torch.optim, kind)(table.parameters(), lr=0.1)
        with Session(quiet(optimizer_impl=impl), device="cpu") as session:
            session.prepare(table, optimizer)
            for index in (1, 4, 1):
                optimizer.zero_grad()
                table(torch.tensor([index])).square().sum().backward()
                optimizer.step()
        found.append(table.weight.detach())
    torch.testing.assert_close(*found)


@pytest.mark.parametrize(
    ("make", "wanted", "words"),
    [
        (lambda m: torch.optim.LBFGS(m.parameters()), "foreach", "LBFGS has no foreach implementation"),
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


def test_a_copied_optimizer_is_plain() -> None:
    model = conv()
    optimizer = made("Adam", model)
    with Session(quiet(optimizer_impl="fused", channels_last=True), device="cpu") as session:
        session.prepare(model, optimizer)
        steps(model, optimizer, 1)
        twin = copy.deepcopy(optimizer)
        assert flags(twin) == flags(made("Adam", model))
        assert b"autotune" not in pickle.dumps(optimizer.state_dict())
