"""Precisions: switches come back, and fp16 scales gradients as a loop by hand does; bf16: see `tests.same_training`."""

import pytest
import torch
from torch import nn

from autotune.knobs.precision import Precision, _Tf32
from autotune.runtime.session import Session
from tests.torch.conftest import differences, process_state
from tests.torch.records import quiet

CPU = torch.device("cpu")


def test_tf32_switches_are_on_inside_and_back_outside() -> None:
    before = process_state()
    change = _Tf32(torch.device("cuda"), "tf32")
    assert torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.cudnn.allow_tf32
    change.undo()
    assert differences(before, process_state()) == []


@pytest.mark.parametrize(("name", "applied"), [("fp32", True), ("bf16", True), ("tf32", False), ("fp16", False)])
def test_precision_is_read_back(name: str, applied: bool) -> None:
    with Session(quiet(precision=name), device="cpu") as session:
        assert ("precision" not in dict(session.not_applied)) is applied


class Scaled:
    """One weight trained in fp16 with a scaler at work: PyTorch's CPU scaler stands in for an accelerator's."""

    def __init__(self, optimizers: int = 1, lr: float = 0.5) -> None:
        self.plugin = Precision(CPU, "fp16")
        self.plugin.scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        self.weights = [nn.Parameter(torch.ones(1)) for _ in range(optimizers)]
        self.optimizers = [torch.optim.SGD([weight], lr=lr) for weight in self.weights]
        for optimizer in self.optimizers:
            self.plugin.on_optimizer(optimizer)

    def step(self, loss: torch.Tensor) -> None:
        """Run the backward pass of ``loss``, make a step of each optimizer and forget the gradients."""
        self.plugin.backward(loss)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()

    @property
    def values(self) -> list[float]:
        """The weights."""
        return [weight.item() for weight in self.weights]


def test_scaler_skips_infinite_gradients_and_says_so() -> None:
    one = Scaled()
    one.step((one.weights[0] * torch.inf).sum())
    one.plugin.settle()
    assert (one.plugin.skipped_steps, one.values, one.plugin.scaler.get_scale()) == (1, [1.0], 4.0)
    one.step(one.weights[0].sum())
    one.plugin.settle()
    assert (one.plugin.skipped_steps, one.values) == (1, [0.5])


def test_two_optimizers_share_one_scale_per_step() -> None:
    two = Scaled(2)
    two.plugin.scaler.set_growth_interval(1)
    for _ in range(2):
        two.step(two.weights[0].sum() + two.weights[1].sum())
    assert two.values == [0.0, 0.0]


def test_gradients_are_unscaled_once_before_clipping() -> None:
    one = Scaled(lr=1.0)
    one.plugin.backward(4 * one.weights[0].sum())
    one.plugin.unscale(one.optimizers)
    one.plugin.unscale(one.optimizers)
    assert one.weights[0].grad is not None
    assert one.weights[0].grad.item() == 4.0
    assert nn.utils.clip_grad_norm_(one.weights, 1.0).item() == 4.0
    one.optimizers[0].step()
    assert one.values == [pytest.approx(0.0, abs=1e-5)]


@pytest.mark.parametrize("cleared", [False, True])
def test_a_step_left_out_after_clipping_leaves_no_trace(cleared: bool) -> None:
    one = Scaled(lr=1.0)
    one.plugin.backward(0.25 * one.weights[0].sum())
    one.plugin.unscale(one.optimizers)  # and no step: a bad batch
    if cleared:
        one.optimizers[0].zero_grad()
    one.step(0.5 * one.weights[0].sum())
    assert one.values == [0.5 if cleared else 0.25]


def test_a_schedule_goes_on_though_steps_are_skipped() -> None:
    one = Scaled(lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(one.optimizers[0], 1, gamma=0.5)
    one.step(one.weights[0].sum())
    one.step((one.weights[0] * torch.inf).sum())
    scheduler.step()
    assert (one.plugin.skipped_steps, scheduler.get_last_lr()) == (0, [0.5])


def test_a_closure_trains_without_scaling() -> None:
    one = Scaled(lr=1.0)

    def closure() -> float:
        one.optimizers[0].zero_grad()
        loss = 0.25 * one.weights[0].sum()
        one.plugin.backward(loss)
        return float(loss)

    one.optimizers[0].step(closure)
    assert one.values == [0.75]
    assert "closure" in (one.plugin.why_not() or "")


def test_gradients_made_past_the_session_are_taken_as_they_are() -> None:
    one = Scaled(lr=1.0)
    (0.25 * one.weights[0].sum()).backward()
    one.optimizers[0].step()
    assert one.values == [0.75]
    one.optimizers[0].zero_grad()
    one.optimizers[0].step()  # nothing to step on
    assert one.values == [0.75]


def test_scaler_state_survives_a_checkpoint() -> None:
    plugin, other = Scaled().plugin, Scaled().plugin
    plugin.scaler.scale(torch.ones(1))
    plugin.scaler.update(2.0)
    other.load_state_dict(plugin.state_dict())
    assert other.scaler.get_scale() == 2.0
    other.load_state_dict({})
    assert other.scaler.get_scale() == 2.0
