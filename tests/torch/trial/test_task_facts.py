"""Facts that decide which knobs are worth a trial."""

from __future__ import annotations

import pytest
from torch import nn

from autotune.trial.child.task_facts import has_convolutions


@pytest.mark.parametrize(
    ("layer", "on_cpu", "on_cuda"),
    [
        (nn.Conv2d(1, 1, 1), True, True),
        (nn.ConvTranspose2d(1, 1, 1), True, True),
        (nn.Conv3d(1, 1, 1), False, True),
        (nn.Conv1d(1, 1, 1), False, False),
        (nn.Linear(1, 1), False, False),
    ],
)
def test_convolutions_count_where_a_knob_acts_on_them(layer: nn.Module, on_cpu: bool, on_cuda: bool) -> None:
    """Memory layout acts on images only, cuDNN's choice of algorithms on volumes too."""
    model = nn.Sequential(layer)
    assert (has_convolutions(model, "cpu"), has_convolutions(model, "cuda")) == (on_cpu, on_cuda)
