"""The tensors of a sample in words, as profiles keep them: ``float32 3x224x224``. Never names or values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy
import torch

MOST = 16
"""Tensors of a sample that are described."""
ANY = "*"
"""Stands for a dimension in which samples differ."""


def shapes_of(samples: Iterable[Any]) -> tuple[str, ...]:
    """One line for each tensor of a sample; empty where there are no samples, or where they differ in their parts."""
    found: list[tuple[str, list[Any]]] = []
    for index, sample in enumerate(samples):
        parts = list(_parts(sample))[:MOST]
        if index == 0:
            found = parts
        elif [(kind, len(shape)) for kind, shape in parts] != [(kind, len(shape)) for kind, shape in found]:
            return ()
        found = [
            (kind, [one if one == other else ANY for one, other in zip(known, shape, strict=True)])
            for (kind, known), (_, shape) in zip(found, parts, strict=True)
        ]
    return tuple(f"{kind} {'x'.join(map(str, shape))}".strip() for kind, shape in found)


def _parts(value: Any) -> Iterator[tuple[str, list[Any]]]:
    if isinstance(value, torch.Tensor | numpy.ndarray):
        yield str(value.dtype).removeprefix("torch."), list(value.shape)
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _parts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _parts(inner)
    else:
        yield ("number" if isinstance(value, int | float) else "text" if isinstance(value, str) else "other"), []
