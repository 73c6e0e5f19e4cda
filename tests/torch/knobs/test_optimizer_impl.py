from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from autotune.runtime.appliers.optimizer import Implementation, parameters_of
from torch import nn

from autotune.runtime.session import Session
from tests.runtime.records import network, quiet

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
    """``count`` steps on always new batches."""
    random = torch.Generator().manual_seed(5)
    for _ in range(count):
        model(torch.randn(2, 3, 4, 4, generator=random)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def same(ours: nn.Module, plain: nn.Module) -> None:
    """The same parameters, as far as rounding lets them be."""
    for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("implementation", ["foreach", "fused"])
def test_the_implementation_is_in_force_inside_a_step_only(kind: str, implementation: str) -> None:
    ours, plain, seen = network(), network(), []
    optimizer, reference = made(kind, ours), made(kind, plain)
    flags = [dict(group) | {"params": None} for group in reference.param_groups]
    with Session(quiet(optimizer_impl=implementation), device="cpu") as session:
        for turn in range(3):
            if turn == 1:  # the first step leaves state behind
                assert session.prepare(optimizer) is optimizer
                optimizer.register_step_pre_hook(lambda o, *_: seen.append(o.param_groups[0][implementation]))
            for m, o in ((ours, optimizer), (plain, reference)):
                m(torch.ones(4, 8)).sum().backward()
                o.step()
                o.zero_grad()
        assert "optimizer_impl" not in dict(session.not_applied)
    assert seen == [True, True]
    assert [dict(group) | {"params": None} for group in optimizer.param_groups] == flags
    same(ours, plain)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("implementation", ["default", "foreach", "fused"])
@pytest.mark.parametrize("own", [None, True])
@pytest.mark.parametrize("loaded", ["before prepare", "after prepare"])
def test_a_plain_checkpoint_goes_on_under_a_profile(
    kind: str, implementation: str, own: bool | None, loaded: str
) -> None:
    plain = conv()
    reference = made(kind, plain, fused=own) if own else made(kind, plain)
    steps(plain, reference, 3)
    checkpoint = pickle.loads(pickle.dumps((plain.state_dict(), reference.state_dict())))
    steps(plain, reference, 4)
    ours = conv()
    optimizer = made(kind, ours, fused=own) if own else made(kind, ours)
    with Session(quiet(optimizer_impl=implementation, channels_last=True), device="cpu") as session:
        if loaded == "after prepare":
            session.prepare(ours, optimizer)
        ours.load_state_dict(checkpoint[0])
        optimizer.load_state_dict(checkpoint[1])
        session.prepare(optimizer, ours)
        steps(ours, optimizer, 4)
        assert session.not_applied == ()
    same(ours, plain)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("implementation", ["default", "fused"])
def test_a_checkpoint_of_a_profile_goes_on_in_plain_pytorch(kind: str, implementation: str) -> None:
    plain, ours = conv(), conv()
    reference, optimizer = made(kind, plain), made(kind, ours)
    steps(plain, reference, 7)
    with Session(quiet(optimizer_impl=implementation, channels_last=True), device="cpu") as session:
        session.prepare(ours, optimizer)
        steps(ours, optimizer, 3)
        state = optimizer.state_dict()
        saved = pickle.loads(pickle.dumps((ours.state_dict(), state)))
    assert saved[1]["param_groups"] == reference.state_dict()["param_groups"]
    for entry in state["state"].values():
        assert all(value.is_contiguous() for value in entry.values() if isinstance(value, torch.Tensor))
    again = conv()
    resumed = made(kind, again, fused=True)
    again.load_state_dict(saved[0])
    resumed.load_state_dict(saved[1])
    for group in resumed.param_groups:
        group["fused"] = True
    random = torch.Generator().manual_seed(5)
    for turn in range(7):
        batch = torch.randn(2, 3, 4, 4, generator=random)
        if turn >= 3:
            again(batch).square().mean().backward()
            resumed.step()
            resumed.zero_grad()
    same(again, plain)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("own", [None, True])
def test_gradients_laid_out_unlike_their_parameters_are_not_scrambled(channels_last: bool, own: bool | None) -> None:
    def run(optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
        random = torch.Generator().manual_seed(3)
        for _ in range(3):
            for parameter in model.parameters():
                turned = torch.randn(tuple(reversed(parameter.shape)), generator=random)
                parameter.grad = turned.permute(*reversed(range(turned.dim())))
            optimizer.step()

    plain, ours = conv(), conv()
    run(made("Adam", plain), plain)
    optimizer = made("Adam", ours, fused=own)
    with Session(quiet(optimizer_impl="fused", channels_last=channels_last), device="cpu") as session:
        session.prepare(ours, optimizer)
        run(optimizer, ours)
        assert "laid out" in dict(session.not_applied)["optimizer_impl"]
    same(ours, plain)


@pytest.mark.parametrize("kind", ["SGD", "Adagrad"])
def test_sparse_gradients_train_by_the_optimizers_own_step(kind: str) -> None:
    found = []
    for implementation in ("default", "fused", "foreach"):
        torch.manual_seed(0)
        table = nn.Embedding(6, 2, sparse=True)
        optimizer = getattr(torch.optim, kind)(table.parameters(), lr=0.1)
        with Session(quiet(optimizer_impl=implementation), device="cpu") as session:
            session.prepare(table, optimizer)
            for index in (1, 4, 1):
                optimizer.zero_grad()
                table(torch.tensor([index])).square().sum().backward()
                optimizer.step()
        found.append(table.weight.detach())
    torch.testing.assert_close(found[0], found[1])
    torch.testing.assert_close(found[0], found[2])


def test_a_closure_makes_its_gradients_inside_the_step() -> None:
    plain, ours = network(), network()
    for model, implementation in ((plain, "default"), (ours, "fused")):
        optimizer = made("AdamW", model)
        with Session(quiet(optimizer_impl=implementation), device="cpu") as session:
            session.prepare(model, optimizer)

            def closure(model: nn.Module = model, optimizer: torch.optim.Optimizer = optimizer) -> torch.Tensor:
                optimizer.zero_grad()
                loss = model(torch.ones(2, 8)).square().mean()
                loss.backward()
                return loss

            for _ in range(3):
                optimizer.step(closure)  # type: ignore[arg-type]
    same(ours, plain)


def test_a_copied_optimizer_is_plain() -> None:
    model = conv()
    optimizer = made("Adam", model)
    with Session(quiet(optimizer_impl="fused", channels_last=True), device="cpu") as session:
        session.prepare(model, optimizer)
        steps(model, optimizer, 1)
        twin = copy.deepcopy(optimizer)
    assert twin.param_groups[0]["fused"] is None


def test_step_counters_go_where_the_implementation_wants_them() -> None:
    weight = nn.Parameter(torch.zeros(1, device="meta"))
    optimizer = torch.optim.Adam([weight])
    optimizer.state[weight] = {"step": torch.zeros(()), "exp_avg": torch.zeros(1)}  # as resumed from a checkpoint
    implementation = Implementation(optimizer, "default")
    assert optimizer.state[weight]["step"].device.type == "cpu"
    assert optimizer.state[weight]["exp_avg"].device.type == "meta"
    optimizer.param_groups[0]["fused"] = True
    implementation.place_state()
    assert optimizer.state[weight]["step"].device.type == "meta"


@pytest.mark.parametrize("wanted", ["foreach", "fused"])
def test_an_optimizer_without_the_implementation_says_so(wanted: str) -> None:
    with Session(quiet(optimizer_impl=wanted), device="cpu") as session:
        session.prepare(torch.optim.LBFGS(network().parameters()))
        assert "LBFGS" in dict(session.not_applied)["optimizer_impl"]


def test_closing_leaves_the_optimizer_as_it_was() -> None:
    model, seen = network(), []
    optimizer = made("Adam", model)
    with Session(quiet(optimizer_impl="fused"), device="cpu") as session:
        session.prepare(optimizer)
    optimizer.register_step_pre_hook(lambda o, *_: seen.append(o.param_groups[0]["fused"]))
    optimizer.step()
    assert seen == [None]
    assert "step" not in vars(optimizer)


class Odd(torch.optim.Adam):
    """Built from a model."""

    def __init__(self, model: nn.Module, warm: int) -> None:
        super().__init__(model.parameters(), lr=0.1)
        self.warm = warm


@pytest.mark.parametrize("implementation", ["foreach", "fused"])
def test_a_users_own_class_is_asked_by_pytorchs_rules(implementation: str) -> None:
    plain, ours = conv(), conv()
    steps(plain, torch.optim.Adam(plain.parameters(), lr=0.1), 3)
    optimizer = Odd(ours, warm=1)
    with Session(quiet(optimizer_impl=implementation), device="cpu") as session:
        session.prepare(ours, optimizer)
        steps(ours, optimizer, 3)
        assert session.not_applied == ()
    same(ours, plain)


def test_a_learning_rate_that_becomes_a_tensor_is_asked_about_again() -> None:
    plain, ours = conv(), conv()
    for model, implementation in ((plain, "default"), (ours, "foreach")):
        optimizer = made("Adam", model)
        with Session(quiet(optimizer_impl=implementation), device="cpu") as session:
            session.prepare(model, optimizer)
            steps(model, optimizer, 1)
            for group in optimizer.param_groups:
                group["lr"] = torch.tensor(5e-3)
            steps(model, optimizer, 2)
            assert ("optimizer_impl" in dict(session.not_applied)) is (implementation == "foreach")
    same(ours, plain)


def test_a_layout_that_changes_later_takes_the_state_along() -> None:
    plain, ours = conv(), conv()
    for model, implementation in ((plain, "default"), (ours, "fused")):
        optimizer = made("Adam", model)
        with Session(quiet(optimizer_impl=implementation), device="cpu") as session:
            session.prepare(model, optimizer)
            for memory_format in (torch.contiguous_format, torch.channels_last, torch.contiguous_format):
                model.to(memory_format=memory_format)  # type: ignore[call-overload]
                steps(model, optimizer, 2)
    same(ours, plain)


def test_parameters_that_train_later_have_no_momentum_yet() -> None:
    plain, ours = conv(), conv()
    for model, implementation in ((plain, "default"), (ours, "fused")):
        model[0].requires_grad_(False)
        optimizer = made("SGD", model)
        with Session(quiet(optimizer_impl=implementation), device="cpu") as session:
            session.prepare(model, optimizer)
            steps(model, optimizer, 2)
            model[0].requires_grad_(True)
            steps(model, optimizer, 2)
    same(ours, plain)


def test_a_scaler_of_the_users_keeps_the_kernel_that_it_works_with() -> None:
    plain, ours = conv(), conv()
    for model, implementation in ((plain, "default"), (ours, "foreach")):
        optimizer, scaler = made("Adam", model, fused=True), torch.amp.GradScaler("cpu")
        with Session(quiet(optimizer_impl=implementation), device="cpu") as session:
            session.prepare(model, optimizer)
            for _ in range(2):
                optimizer.zero_grad()
                scaler.scale(model(torch.ones(2, 3, 4, 4)).square().mean()).backward()
                scaler.step(optimizer)
                scaler.update()
    same(ours, plain)


@pytest.mark.parametrize("first", ["model", "optimizer"])
def test_an_optimizer_that_flattens_gradients_keeps_the_usual_layout(first: str) -> None:
    model = conv()
    optimizer = torch.optim.LBFGS(model.parameters())
    with Session(quiet(channels_last=True), device="cpu") as session:
        for item in (model, optimizer) if first == "model" else (optimizer, model):
            session.prepare(item)
        optimizer.step(lambda: model(torch.ones(2, 3, 4, 4)).square().mean())
        assert "flattens" in dict(session.not_applied)["channels_last"]
        assert all(parameter.is_contiguous() for parameter in model.parameters())


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


@pytest.mark.parametrize("implementation", ["default", "foreach", "fused"])
@pytest.mark.parametrize("channels_last", [False, True])
def test_state_that_is_no_dictionary_is_left_alone(implementation: str, channels_last: bool) -> None:
    ours, plain = conv(), conv()
    optimizer, reference = Velocity(ours.parameters()), Velocity(plain.parameters())
    with Session(quiet(optimizer_impl=implementation, channels_last=channels_last), device="cpu") as session:
        steps(ours, optimizer, 1)
        session.prepare(ours, optimizer)
        steps(ours, optimizer, 2)
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        steps(ours, optimizer, 1)
    steps(plain, reference, 1)
    steps(plain, reference, 2)
    steps(plain, reference, 1)
    same(ours, plain)


@pytest.mark.parametrize("option", ["betas", "weight_decay", "lr"])
@pytest.mark.parametrize("implementation", ["foreach", "fused"])
def test_options_that_are_tensors_train_as_in_plain(option: str, implementation: str) -> None:
    """What the class does not take together, such as tensor betas with foreach, is refused before the first step."""
    value = {"betas": (torch.tensor(0.9), torch.tensor(0.99))}.get(option, torch.tensor(0.01))
    ours, plain = conv(), conv()
    optimizer, reference = (
        torch.optim.AdamW(model.parameters(), **({"lr": 0.01} | {option: value})) for model in (ours, plain)
    )
    with Session(quiet(optimizer_impl=implementation), device="cpu") as session:
        session.prepare(ours, optimizer)
        steps(ours, optimizer, 3)
        if (option, implementation) == ("betas", "foreach"):
            assert "as a Tensor is not supported" in dict(session.not_applied)["optimizer_impl"]
    steps(plain, reference, 3)
    same(ours, plain)
