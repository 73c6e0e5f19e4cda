from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch
from autotune.trial.child.sample_shapes import shapes_of


@pytest.mark.parametrize(
    ("samples", "lines"),
    [
        ([], ()),
        ([torch.zeros(3, 4)], ("float32 3x4",)),
        ([(torch.zeros(3, 4), 1)] * 2, ("float32 3x4", "number")),
        ([{"x": numpy.zeros(5, dtype="int64"), "y": "name"}], ("int64 5", "text")),
        ([torch.zeros(3, 4), torch.zeros(5, 4), torch.zeros(3, 4)], ("float32 *x4",)),
        ([torch.zeros(3), torch.zeros(3, 1)], ()),
        ([torch.zeros(3), (torch.zeros(3), 1)], ()),
        ([[object()]], ("other",)),
        ([torch.zeros(())], ("float32",)),
        ([[1] * 100], ("number",) * 16),
    ],
)
def test_in_words(samples: list[Any], lines: tuple[str, ...]) -> None:
    assert shapes_of(samples) == lines
