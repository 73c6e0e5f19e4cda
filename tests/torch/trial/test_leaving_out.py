"""Steps without one of their parts, in this process."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from autotune.trial.child.measured_loop import quarter
from autotune.trial.messages import Without

from .conftest import BATCH, Workshop, block


class TestLeavingOut:
    def test_a_loader_that_is_left_out_gives_one_batch_again_and_again(self, workshop: Workshop) -> None:
        seen: list[Any] = []

        def loss(model: nn.Module, batch: Any) -> torch.Tensor:
            seen.append(batch[0])
            return workshop.loss(model, batch)

        loop = workshop.loop(spec={"without": Without.LOADER}, compute_loss=loss)
        block(loop, 5)
        assert len({each.data_ptr() for each in seen}) == 1

    def test_an_update_that_is_left_out_changes_no_weight(self, workshop: Workshop) -> None:
        loop = workshop.loop(spec={"without": Without.UPDATE})
        loop.leave_out()
        before = [p.clone() for p in loop.model.parameters()]
        block(loop, 3)
        assert all(map(torch.equal, before, loop.model.parameters()))

    def test_a_closure_is_still_called(self, workshop: Workshop) -> None:
        loop = workshop.loop(spec={"without": Without.UPDATE})
        loop.leave_out()
        assert loop.optimizer.step(lambda: torch.tensor(3.0)) == 3.0
        assert loop.optimizer.step() is None


class TestQuarter:
    def test_every_step_trains_on_the_first_quarter_of_the_first_batch(self, workshop: Workshop) -> None:
        seen: list[torch.Tensor] = []

        def loss(model: nn.Module, batch: Any) -> torch.Tensor:
            seen.append(batch[0])
            return workshop.loss(model, batch)

        loop = workshop.loop(spec={"without": Without.SAMPLES}, compute_loss=loss)
        assert block(loop, 3).items == 3 * BATCH // 4
        assert len({each.data_ptr() for each in seen}) == 1

    def test_what_is_no_sample_stays_whole(self) -> None:
        batch = {"inputs": torch.ones(8, 3), "scale": torch.ones(2), "name": "x", "mean": torch.ones(())}
        cut = quarter(batch)
        assert (cut["inputs"].shape, cut["scale"].shape, cut["name"]) == ((2, 3), (2,), "x")

    def test_a_batch_of_three_cannot_be_cut(self) -> None:
        with pytest.raises(ValueError, match="3 samples"):
            quarter(torch.ones(3, 2))
