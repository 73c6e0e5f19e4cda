"""Parts of a step, left out or measured alone, in this process."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import default_collate

from autotune.core.parts import LOADER, UPDATE
from autotune.diagnosis.inspection import Inspection
from autotune.knobs.settings import Settings
from autotune.trial.child import loader_alone, operators
from autotune.trial.child.inspecting import _device_memory, inspecting
from autotune.trial.child.operators import OperatorCounter, SavedTensors

from .conftest import BATCH, Workshop, block


class TestLeavingOut:
    def test_a_loader_that_is_left_out_gives_one_batch_again_and_again(self, workshop: Workshop) -> None:
        seen: list[Any] = []

        def loss(model: nn.Module, batch: Any) -> torch.Tensor:
            seen.append(batch[0])
            return workshop.loss(model, batch)

        loop = workshop.loop(spec={"without": LOADER}, compute_loss=loss)
        block(loop, 5)
        assert len({each.data_ptr() for each in seen}) == 1

    def test_a_step_may_take_entries_out_of_the_batch(self, workshop: Workshop) -> None:
        def collate(samples: Any) -> dict[str, Any]:
            inputs, targets = default_collate(samples)
            return {"inputs": inputs, "targets": targets}

        def loss(model: nn.Module, batch: Any) -> torch.Tensor:
            return workshop.loss(model, (batch.pop("inputs"), batch.pop("targets")))

        loop = workshop.loop(
            spec={"without": LOADER}, compute_loss=loss, collate_fn=collate, count_items=lambda batch: BATCH
        )
        assert block(loop, 3).items == 3 * BATCH

    def test_an_update_that_is_left_out_changes_no_weight(self, workshop: Workshop) -> None:
        loop = workshop.loop(spec={"without": UPDATE})
        loop.leave_out()
        before = [p.clone() for p in loop.model.parameters()]
        block(loop, 3)
        assert all(map(torch.equal, before, loop.model.parameters()))

    def test_a_whole_step_changes_them(self, workshop: Workshop) -> None:
        loop = workshop.loop()
        loop.leave_out()
        before = [p.clone() for p in loop.model.parameters()]
        block(loop, 3)
        assert not any(map(torch.equal, before, loop.model.parameters()))

    def test_a_closure_is_still_called(self, workshop: Workshop) -> None:
        loop = workshop.loop(spec={"without": UPDATE})
        loop.leave_out()
        assert loop.optimizer.step(lambda: torch.tensor(3.0)) == 3.0
        assert loop.optimizer.step() is None


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """As few repeats as possible."""
    monkeypatch.setattr(loader_alone, "SECONDS", 0.0)
    monkeypatch.setattr(operators, "PROFILE_SECONDS", 0.0)
    monkeypatch.setattr("autotune.trial.child.inspecting.SECONDS", 0.0)


@pytest.mark.usefixtures("short")
class TestInspecting:
    def test_every_part_is_measured(self, workshop: Workshop) -> None:
        loop = workshop.loop(Settings(batch_size=BATCH), spec={"inspect": True})
        block(loop, 1)
        found = Inspection.from_dict(loop.run(inspecting(loop, 0.01)))
        assert {each.name for each in found.operators} >= {"aten::addmm", "aten::mse_loss"}
        assert next(each for each in found.operators if each.name == "aten::addmm").flops == 2 * BATCH * 3
        assert found.sizes.parameters == found.sizes.gradients == 4 * 4
        assert found.sizes.batch == BATCH * 4 * 4
        assert found.loader is not None
        assert found.exchange_seconds is None
        assert found.copy_seconds is None
        assert len(found.batches) >= 5
        assert len(found.slowest) == 3
        assert min(found.update_seconds, found.call_seconds, found.loader.batch_seconds) > 0

    def test_a_batch_that_cannot_be_cut_is_left_whole(self, workshop: Workshop) -> None:
        loop = workshop.loop(Settings(batch_size=2), spec={"inspect": True})
        block(loop, 1)
        assert loop.run(inspecting(loop, 0.01))["batches"] == []


class TestCounting:
    def test_bytes_are_those_of_what_is_read_and_written(self) -> None:
        counter, ones = OperatorCounter(), torch.ones(100)
        with counter:
            _ = ones * ones
        assert (counter.found["aten::mul"].calls, counter.found["aten::mul"].bytes) == (1, 3 * 400)

    def test_a_view_moves_nothing(self) -> None:
        counter, ones = OperatorCounter(), torch.ones(10, 10)
        with counter:
            ones.t()
        assert counter.found["aten::t"].bytes == 0

    def test_an_expanded_tensor_is_as_large_as_its_storage(self) -> None:
        counter, ones = OperatorCounter(), torch.ones(1).expand(100)
        with counter:
            _ = ones + torch.ones(100)
        assert counter.found["aten::add"].bytes == 4 + 400 + 400

    def test_what_runs_while_it_pauses_is_not_counted(self) -> None:
        counter, ones = OperatorCounter(), torch.ones(10)
        with counter:
            counter.pause()
            _ = ones * 2
            counter.go_on()
            _ = ones + 2
        assert list(counter.found) == ["aten::add"]

    def test_activations_are_what_the_backward_pass_needs_but_parameters(self) -> None:
        layer, inputs = nn.Linear(8, 4), torch.ones(16, 8)
        saved = SavedTensors(layer.parameters())
        with saved:
            layer(inputs).sin()
        assert saved.bytes == 16 * 8 * 4 + 16 * 4 * 4, "the input, and what the sine was taken of"


@pytest.mark.parametrize(
    ("running", "waiting", "seconds", "busy"),
    [(0.9, 0.0, 1.0, 0.9), (0.1, 0.0, 1.0, 0.1), (0.1, 0.9, 1.0, 1.0), (0.1, 0.5, 1.0, 0.2), (0.0, 1.0, 1.0, 0.0)],
)
def test_what_others_made_a_loader_wait_is_neither_busy_nor_idle(
    running: float, waiting: float, seconds: float, busy: float
) -> None:
    used = loader_alone._Used(running + 5, waiting + 5, 9.0).since(loader_alone._Used(5.0, 5.0, 1.0))
    assert used.busy(seconds) == pytest.approx(busy)
    assert used.read == 8.0


def test_what_a_device_allocator_holds() -> None:
    stats = {"reserved_bytes.all.peak": 2**30, "inactive_split_bytes.all.current": 2**20, "other": 1}
    assert _device_memory(stats) == {"reserved": 2**30, "split": 2**20}
    assert _device_memory({}) == {"reserved": 0, "split": 0}
