from __future__ import annotations

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


def test_a_layer_without_a_shape_yet_is_left_alone() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.LazyConv2d(4, 3))
    with Session(quiet(channels_last=True), device="cpu") as session:
        session.prepare(model)
        assert "first batch" in dict(session.not_applied)["channels_last"]
        assert model(torch.ones(2, 3, 8, 8)).shape == (2, 4, 4, 4)
