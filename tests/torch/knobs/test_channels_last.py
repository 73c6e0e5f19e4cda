from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from autotune.runtime.session import Session
from tests.runtime.records import quiet


class Viewing(nn.Module):
    """Flattens by a view, as many tutorials do; that needs the usual layout."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.drop = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5)
        self.last = nn.Linear(4 * 36, 2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Two numbers for each image."""
        hidden = self.drop(self.norm(self.first(images)))
        return self.last(hidden.view(hidden.size(0), -1))


def test_a_model_that_takes_views_goes_back_to_the_usual_layout() -> None:
    found = []
    for channels_last in (False, True):
        with Session(quiet(channels_last=channels_last), device="cpu") as session:
            model = session.prepare(Viewing())
            torch.manual_seed(3)
            outputs = [model(torch.ones(2, 3, 8, 8)).detach() for _ in range(2)]
            found.append([*outputs, *model.state_dict().values()])
            assert ("channels_last" in dict(session.not_applied)) is channels_last
    for plain, ours in zip(*found, strict=True):
        torch.testing.assert_close(plain, ours)


class Auxiliary(nn.Module):
    """Flattens by a view in training only; the first call is an evaluation."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4 * 36, 2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Two numbers for each image."""
        hidden = self.norm(self.first(images))
        return self.last(hidden.view(hidden.size(0), -1) if self.training else hidden.flatten(1))


def test_a_view_that_only_training_takes_goes_back_too() -> None:
    found = []
    for channels_last in (False, True):
        with Session(quiet(channels_last=channels_last), device="cpu") as session:
            model = session.prepare(Auxiliary())
            outputs = [model.train(training)(torch.ones(2, 3, 8, 8)).detach() for training in (False, True, True)]
            found.append([*outputs, *model.state_dict().values()])
            assert ("channels_last" in dict(session.not_applied)) is channels_last
    for plain, ours in zip(*found, strict=True):
        torch.testing.assert_close(plain, ours)


class Outputs(nn.Sequential):
    """Feature maps, in containers, as they are and with time as a dimension of its own."""

    def forward(self, images: torch.Tensor) -> dict[str, Any]:
        """Outputs of four and five dimensions, one of them a broadcast one."""
        maps = super().forward(images)
        return {"maps": maps, "video": [maps.unflatten(0, (2, -1))], "wide": maps[:1].expand(2, -1, -1, -1)}


@pytest.mark.parametrize("training", [True, False])
def test_outputs_have_the_usual_layout(training: bool) -> None:
    with Session(quiet(channels_last=True), device="cpu") as session:
        model = session.prepare(Outputs(nn.Conv2d(3, 4, 3))).train(training)
        for _ in range(2):
            outputs = model(torch.ones(4, 3, 8, 8))
            assert outputs["maps"].is_contiguous()
            assert outputs["video"][0].view(2, -1).shape == (2, 2 * 4 * 36)
            assert outputs["wide"].stride(0) == 0
            outputs["maps"].view(4, -1).sum().backward()
        assert "channels_last" not in dict(session.not_applied)
        assert model[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_a_model_that_the_user_has_laid_out_stays_as_it_is() -> None:
    own = nn.Sequential(nn.Conv2d(3, 4, 3)).to(memory_format=torch.channels_last)
    with Session(quiet(channels_last=True), device="cpu") as session:
        model = session.prepare(own)
        assert not model(torch.ones(2, 3, 8, 8).to(memory_format=torch.channels_last)).is_contiguous()
        assert "channels_last" not in dict(session.not_applied)


def test_a_layer_without_a_shape_yet_is_left_alone() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.LazyConv2d(4, 3))
    with Session(quiet(channels_last=True), device="cpu") as session:
        session.prepare(model)
        assert "first batch" in dict(session.not_applied)["channels_last"]
        assert model(torch.ones(2, 3, 8, 8)).shape == (2, 4, 4, 4)
