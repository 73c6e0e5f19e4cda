"""Devices, on stand-ins: another card than the first, bare tensors, and what starts a context."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from autotune import devices
from autotune.knobs.change import Training
from autotune.knobs.convolutions import CUDNN_BENCHMARK
from autotune.scripts.hooks import Hooks
from autotune.trial.child.measured_loop import MeasuredLoop
from autotune.trial.child.script_facts import Seen, script_facts
from tests.torch.trial.conftest import Workshop, block, workshop

__all__ = ["workshop"]


class Card(nn.Parameter):
    """A parameter that says that it is on another device."""

    where = torch.device("cuda:1")

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.where


def card() -> Card:
    return Card(torch.zeros(2))


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """A script that trains bare tensors."""
    monkeypatch.setattr(Hooks, "optimizers", [torch.optim.SGD([card()], lr=0.1)])
    return Seen(Hooks())


@pytest.mark.parametrize(
    ("where", "found"), [("cuda:1", "cuda:1"), ("cuda:0", "cuda"), ("mps:0", "mps"), ("cpu", "cpu")]
)
def test_bare_tensors_tell_the_device_and_its_index(where, found, bare: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Card, "where", torch.device(where))
    assert script_facts("train", bare).device == found


def test_all_devices_of_a_training_are_waited_for(monkeypatch: pytest.MonkeyPatch, workshop: Workshop) -> None:
    """The clock stops when the last of them has finished, and memory is that of the fullest."""
    waited: list[str] = []
    monkeypatch.setattr(devices.Device, "synchronize", lambda device: waited.append(str(device)))
    monkeypatch.setattr(devices.Device, "peak_memory", lambda device: 5 if device.index == 1 else 3)
    loop = workshop.loop()
    optimizer = torch.optim.SGD([card(), nn.Parameter(torch.zeros(1))], lr=0.1)
    monkeypatch.setattr(MeasuredLoop, "trained_with", lambda _loop: [optimizer])
    block(loop, 1)
    assert waited == ["cuda:1"] * 2
    assert loop.memory().gpu == 5


def test_an_accelerator_without_a_row_works_by_what_pytorch_says_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    module = SimpleNamespace(set_device=asked.append, is_initialized=lambda: True)
    monkeypatch.setattr(torch, "get_device_module", lambda _kind: module)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("xpu"))
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "synchronize", asked.append)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    found = devices.of(f"{devices.found()}:2")
    found.select()
    found.synchronize()
    assert (str(found), asked, found.has_context(), found.peak_memory()) == ("xpu:2", [2, "xpu:2"], True, 0)


@pytest.fixture
def switches() -> Iterator[None]:
    """Give PyTorch's switches back."""
    cudnn, own = torch.backends.cudnn, torch.get_float32_matmul_precision()
    with cudnn.flags(enabled=cudnn.enabled, benchmark=False, deterministic=False, allow_tf32=cudnn.allow_tf32):
        yield
    torch.set_float32_matmul_precision(own)


def test_the_switches_of_a_script_are_its_baseline(bare: Seen, switches: None) -> None:
    plain = script_facts("train", bare)
    assert (plain.current["cudnn_benchmark"], plain.current["precision"]) == (False, "fp32")
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    found = script_facts("train", bare)
    assert (found.current["cudnn_benchmark"], found.current["precision"]) == (True, "tf32")
    assert found.why_left_out("cudnn_benchmark", False, own=True)
    assert found.why_left_out("precision", "fp32", own="tf32")


def test_nothing_is_searched_under_somebody_who_asks_for_determinism(bare: Seen, switches: None) -> None:
    """Also if the script asks for it after autotune has begun."""
    put = CUDNN_BENCHMARK.on_model
    assert put is not None
    session, model = Training(torch.device("cuda:1")), nn.Linear(1, 1)
    torch.backends.cudnn.deterministic = True
    assert script_facts("train", bare).why_left_out("cudnn_benchmark", True, own=False)
    refused = put(True, model, session)
    assert refused is not None
    assert refused.why_not()
    assert not torch.backends.cudnn.benchmark
    torch.backends.cudnn.deterministic = False
    change = put(True, model, session)
    assert torch.backends.cudnn.benchmark
    assert change is not None
    change.undo()
    assert not torch.backends.cudnn.benchmark
