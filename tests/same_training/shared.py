"""Plain PyTorch that runs each part of a batch through the model by itself, as several processes do.

Only BatchNorm can tell the difference: it normalises over a part. The loss is that of the whole batch.
"""

from typing import Any

import torch
from torch import Tensor, nn

from tests.same_training.case import Case
from tests.same_training.record import Record
from tests.same_training.sides import PlainSide
from tests.same_training.training import PHASES

Shares = dict[tuple[int, ...], list[list[int]]]
"""``{samples of a global batch, sorted: the samples of each rank}``."""


def shares(case: Case, ranks: list[Record]) -> Shares:
    """What each rank saw of each global batch, in the halves of the training that the runtime ran."""
    found: Shares = {}
    for half, side in enumerate(PHASES[case.checkpoint]):
        if side == "tested":
            for name in ("train", "second"):
                for parts in zip(*(record.half(name, half) for record in ranks), strict=False):
                    found[tuple(sorted({number for part in parts for number in part}))] = list(parts)
    return found


class SharedSide(PlainSide):
    """Forward passes in training go part by part; running statistics are the mean over parts."""

    def __init__(self, precision: str, shares: Shares) -> None:
        super().__init__(precision, peeks=False)
        self.shares, self.ids = shares, list[int]()

    def reads(self, ids: list[int]) -> None:
        """Which samples the rows of the next inputs are."""
        self.ids = ids

    def call(self, network: nn.Module, *inputs: Any) -> Tensor:
        """The outputs of all parts, put back into the order of the batch."""
        parts = self._rows()
        if not network.training or len(parts) < 2:
            return super().call(network, *inputs)
        pieces, after = [], []
        before = {name: buffer.clone() for name, buffer in network.named_buffers()}
        for rows in parts:
            _fill(network, before)
            pieces.append(super().call(network, *(x[rows] for x in inputs)))
            after.append({name: buffer.clone() for name, buffer in network.named_buffers()})
        _fill(network, {name: _mean([each[name] for each in after]) for name in before})
        return torch.cat(pieces)[torch.tensor([row for rows in parts for row in rows]).argsort()]

    def _rows(self) -> list[list[int]]:
        """Rows of each different part of the current batch; a part that several ranks hold counts once."""
        free = list(enumerate(self.ids))
        parts = []
        for part in self.shares.get(tuple(sorted(set(self.ids))), []):
            rows = _taken(part, free)
            if len(rows) == len(part):
                parts.append(rows)
                free = [(row, number) for row, number in free if row not in rows]
        return parts if not free else []


def _fill(network: nn.Module, values: dict[str, Tensor]) -> None:
    for name, buffer in network.named_buffers():
        buffer.data.copy_(values[name])  # not noticed by autograd, which has no need of it


def _mean(values: list[Tensor]) -> Tensor:
    return torch.stack(values).mean(0) if values[0].is_floating_point() else values[0]


def _taken(part: list[int], free: list[tuple[int, int]]) -> list[int]:
    """A row for each sample of ``part``, as far as there are any left."""
    rows: list[int] = []
    for wanted in part:
        rows += [row for row, number in free if number == wanted and row not in rows][:1]
    return rows
