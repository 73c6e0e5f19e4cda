"""`Record`: what one side's training left behind, in a form that two sides can be compared in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

ORDERS = ("train", "second", "eval")


@dataclass
class Record:
    """Everything that must be the same. ``values`` are floats and tensors under dotted names; the rest is exact."""

    values: dict[str, Any] = field(default_factory=dict)
    """Parameters, buffers, optimizer state, learning rates, losses, figures of evaluation."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Lengths, classes of batches, options of parameter groups, keys of files, layouts."""
    orders: dict[str, list[list[int]]] = field(default_factory=lambda: {name: [] for name in ORDERS})
    """Ids of the samples of each batch."""
    starts: list[dict[str, int]] = field(default_factory=list)
    """For each half of the training, the number of batches before it."""
    notes: tuple[str, ...] = ()
    not_applied: tuple[tuple[str, str], ...] = ()

    def add(self, name: str, content: Any) -> None:
        """Sort ``content``, a nested checkpoint, into values and facts."""
        for path, leaf in leaves(name, content):
            if isinstance(leaf, Tensor):
                self.facts[f"{path} type"] = (str(leaf.dtype), tuple(leaf.shape))
                dense = leaf.detach().to_dense() if leaf.is_sparse else leaf.detach()
                self.values[path] = dense.clone(memory_format=torch.contiguous_format)
            elif isinstance(leaf, float):
                self.values[path] = leaf
            else:
                self.facts[path] = leaf

    def begin(self) -> None:
        """A half of the training begins."""
        self.starts.append({name: len(batches) for name, batches in self.orders.items()})

    def half(self, name: str, number: int) -> list[list[int]]:
        """Batches of half ``number``."""
        ends = [*self.starts[1:], {name: None}]
        return self.orders[name][self.starts[number][name] : ends[number][name]]

    def heard(self, notes: tuple[str, ...], refused: tuple[tuple[str, str], ...]) -> None:
        """What the side said, in both halves of a training, once."""
        self.notes = tuple(dict.fromkeys(self.notes + notes))
        self.not_applied = tuple(dict.fromkeys(self.not_applied + refused))


def reordered(optimizers: list[dict[str, Any]]) -> list[str]:
    """Names of state tensors whose memory is not in the order of plain PyTorch's files."""
    return [
        path
        for path, leaf in leaves("optimizer", optimizers)
        if isinstance(leaf, Tensor) and not leaf.is_sparse and not leaf.is_contiguous()
    ]


def length(loader: Any) -> int | None:
    """``len(loader)``; None where it has none."""
    try:
        return len(loader)
    except TypeError:
        return None


def leaves(name: str, content: Any) -> Iterator[tuple[str, Any]]:
    """Dotted names and leaves of nested mappings and lists."""
    if isinstance(content, Mapping):
        for key, item in content.items():
            yield from leaves(f"{name}.{key}", item)
    elif isinstance(content, list | tuple):
        yield f"{name} length", len(content)
        for number, item in enumerate(content):
            yield from leaves(f"{name}.{number}", item)
    else:
        yield name, content
