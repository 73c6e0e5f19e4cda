from __future__ import annotations

import copy
import pickle
from collections import OrderedDict, namedtuple
from typing import Any

import pytest
import torch
from torch import nn

from autotune.runtime import switches
from autotune.runtime.precision import PRECISIONS, Bf16, Fp16, create, to_float32
from autotune.runtime.session import Session

from .conftest import process_state
from .records import dataset, network, quiet

CPU = torch.device("cpu")
Pair = namedtuple("Pair", "left right")


@pytest.mark.parametrize("name", sorted(PRECISIONS))
def test_globals_are_back_after_an_exception_inside(name: str) -> None:
    before = process_state()
    plugin = create(name, CPU)
    model = network()
    plugin.wrap(model)
    with pytest.raises(ZeroDivisionError), plugin, plugin.autocast():
        divmod(model(torch.ones(1, 8)).numel(), 0)
    assert process_state() == before


def test_tf32_switches_are_on_inside_and_back_outside() -> None:
    before = process_state()
    with switches.allow_tf32():
        assert torch.backends.cuda.matmul.allow_tf32
        assert torch.backends.cudnn.allow_tf32
    assert process_state() == before


@pytest.mark.parametrize(("name", "applied"), [("fp32", True), ("bf16", True), ("tf32", False), ("fp16", False)])
def test_precision_is_read_back(name: str, applied: bool) -> None:
    with Session(quiet(precision=name), device="cpu") as session:
        assert ("precision" not in dict(session.not_applied)) is applied


def test_bf16_on_cpu_equals_a_plain_autocast_loop_bit_by_bit() -> None:
    data = dataset(64)
    plain = network()
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-2)
    for start in range(0, 64, 16):
        inputs, targets = data[start : start + 16]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outputs = plain(inputs)
        nn.functional.mse_loss(outputs.float(), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
    with Session(quiet(precision="bf16", batch_size=16), device="cpu") as session:
        tuned = network()
        model, ours, loader = session.prepare(
            tuned,
            torch.optim.AdamW(tuned.parameters(), lr=1e-2),
            torch.utils.data.DataLoader(data, batch_size=16),
        )
        for inputs, targets in loader:
            with session.accumulate(model):
                outputs = model(inputs)
                assert outputs.dtype is torch.float32
                session.backward(nn.functional.mse_loss(outputs, targets))
                ours.step()
                ours.zero_grad()
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), tuned.parameters(), strict=True))
    assert not torch.equal(next(plain.parameters()), next(network().parameters()))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_wrapped_models_copy_and_pickle(copied: Any) -> None:
    model = network()
    Bf16(CPU).wrap(model)
    twin = copied(model)
    next(model.parameters()).data.zero_()
    assert next(twin.parameters()).abs().sum() > 0
    assert twin(torch.ones(1, 8)).dtype is torch.float32


def test_outputs_in_containers_come_back_in_float32() -> None:
    half = torch.ones(2, dtype=torch.bfloat16)
    converted = to_float32(
        {"pair": Pair(half, 1), "list": [half, "text"], "ordered": OrderedDict(a=half), "whole": torch.ones(1).long()}
    )
    assert converted["pair"].left.dtype is converted["list"][0].dtype is torch.float32
    assert type(converted["pair"]) is Pair
    assert type(converted["ordered"]) is OrderedDict
    assert converted["ordered"]["a"].dtype is torch.float32
    assert converted["whole"].dtype is torch.int64


def scaling(device: torch.device = CPU) -> Fp16:
    """fp16 with a scaler at work: PyTorch's CPU scaler stands in for that of an accelerator."""
    plugin = Fp16(device)
    plugin.scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    return plugin


def test_scaler_skips_infinite_gradients_and_says_so() -> None:
    plugin, weight = scaling(), nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    plugin.backward((weight * torch.inf).sum())
    plugin.step(optimizer)
    plugin.settle()
    assert (plugin.skipped_steps, weight.item(), plugin.scaler.get_scale()) == (1, 1.0, 4.0)
    optimizer.zero_grad()
    plugin.backward(weight.sum())
    plugin.step(optimizer)
    plugin.settle()
    assert (plugin.skipped_steps, weight.item()) == (1, 0.5)


def test_two_optimizers_share_one_scale_per_step() -> None:
    plugin, weights = scaling(), [nn.Parameter(torch.ones(1)) for _ in range(2)]
    optimizers = [torch.optim.SGD([weight], lr=0.5) for weight in weights]
    plugin.scaler.set_growth_interval(1)
    for _ in range(2):
        plugin.backward(weights[0].sum() + weights[1].sum())
        for optimizer in optimizers:
            plugin.step(optimizer)
            optimizer.zero_grad()
    assert [weight.item() for weight in weights] == [0.0, 0.0]


def test_gradients_are_unscaled_once_before_clipping() -> None:
    plugin, weight = scaling(), nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    plugin.backward(4 * weight.sum())
    plugin.unscale([optimizer])
    plugin.unscale([optimizer])
    assert weight.grad is not None
    assert weight.grad.item() == 4.0
    assert nn.utils.clip_grad_norm_([weight], 1.0).item() == 4.0
    plugin.step(optimizer)
    assert weight.item() == pytest.approx(0.0, abs=1e-5)


def test_scaler_state_survives_a_checkpoint() -> None:
    plugin, other = scaling(), scaling()
    plugin.scaler.scale(torch.ones(1))
    plugin.scaler.update(2.0)
    other.load_state_dict(plugin.state_dict())
    assert other.scaler.get_scale() == 2.0
    other.load_state_dict({})
    assert other.scaler.get_scale() == 2.0
