"""What ranks of an unmodified script show of how they train, and whether they share the work of one process. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

STEPS = 3
"""Optimizer steps of a rank that are looked at."""
OTHER_GRADIENTS = 1.5
"""Gradients of several ranks may be this many times as large as those of one process, or as small: their samples
differ. Gradients that are added up where they should be averaged differ by the number of ranks."""
OTHER_SAMPLES = 1.5
"""Samples of ranks may have this many times the elements of those of one process: a small batch needs less padding."""
FEW_BATCHES = 4
"""From as many batches in an epoch on, ranks may have one more or less: the last batch is a ragged one."""
STARTED = "two processes started as torchrun does: "


@dataclass(frozen=True, kw_only=True)
class RankEvidence:
    """One rank's first training steps.

    Attributes:
        rank: the process.
        world: ranks of the process group; 1 where there is none.
        backend: what the group exchanges tensors of the CPU with; empty where there is none.
        samples: of the first batch.
        elements: of all tensors of a sample, on average over the first batches.
        batches: digest of each of the first batches.
        epoch: batches of one pass over the loader; None where nobody knows.
        batches_per_step: between two optimizer steps, on average.
        weights: digest of all weights that optimizers hold, after the last step.
        changed: whether steps have changed the weights.
        gradient: norm of the gradients of a step, as a geometric mean.
        options: of the optimizers' parameter groups, at the last step: learning rates and the like.
        schedules: how often each learning rate scheduler has stepped.
        launcher: what else decides about the number of processes, in words.
    """

    rank: int
    world: int
    backend: str
    samples: int
    elements: float
    batches: tuple[str, ...]
    epoch: int | None
    batches_per_step: float
    weights: str
    changed: bool
    gradient: float
    options: tuple[Mapping[str, Any], ...]
    schedules: tuple[int, ...]
    launcher: str = ""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RankEvidence:
        """The inverse of `dataclasses.asdict`, by way of JSON."""
        lists = {name: tuple(data[name]) for name in ("batches", "options", "schedules")}
        return cls(**{**data, **lists})


def why_not_shared(alone: RankEvidence, ranks: Sequence[RankEvidence]) -> str | None:
    """Why ``ranks`` do not train together as one process does ``alone``; None where they do.

    Args:
        alone: the script as one process.
        ranks: all ranks of the same script, whose loaders were given their share of the batch.
    """
    found = _apart(ranks) or _other_work(alone, ranks) or _other_steps(alone, ranks)
    return None if found is None else STARTED + found


def _apart(ranks: Sequence[RankEvidence]) -> str | None:
    """Why the ranks do not train together."""
    if any(rank.world != len(ranks) for rank in ranks):
        own = f" ({ranks[0].launcher})" if ranks[0].launcher else ""
        return f"the script makes no process group of them{own}, so each trains on its own"
    if not all(rank.changed for rank in ranks):
        return "no weight changes in the first steps, so nothing shows whether gradients are exchanged"
    if len({rank.weights for rank in ranks}) > 1:
        return "the weights of the ranks differ after a step, so each trains on its own"
    if any(rank.backend != "gloo" for rank in ranks):
        return f"the script's process group exchanges over {ranks[0].backend}; gloo is known to work"
    return None


def _other_work(alone: RankEvidence, ranks: Sequence[RankEvidence]) -> str | None:
    """Why the ranks do not share the work of one process."""
    if len({batch for rank in ranks for batch in rank.batches}) < sum(len(rank.batches) for rank in ranks):
        return "the ranks train on the same batches, so they do the same work"
    share = alone.samples // len(ranks)
    other = next((rank for rank in ranks if rank.samples != share), None)
    if other is not None:
        return f"a rank takes batches of {other.samples} samples, where its share of {alone.samples} is {share}"
    for rank in ranks:
        size = rank.elements / alone.elements if alone.elements else 1.0
        if not 1 / OTHER_SAMPLES <= size <= OTHER_SAMPLES:
            return f"samples of a rank are {size:.2g} times as large as those of one process"
    own = alone.epoch
    allowed = 1 if own is not None and own >= FEW_BATCHES else 0
    if own is None or any(rank.epoch is None or abs(rank.epoch - own) > allowed for rank in ranks):
        return f"an epoch of a rank has {ranks[0].epoch} batches, where that of one process has {own}"
    return None


def _other_steps(alone: RankEvidence, ranks: Sequence[RankEvidence]) -> str | None:
    """Why a step of the ranks is not that of one process."""
    for rank in ranks:
        if rank.batches_per_step != alone.batches_per_step:
            return (
                f"an optimizer step takes {rank.batches_per_step:g} batches of a rank, and"
                f" {alone.batches_per_step:g} of one process"
            )
        if rank.schedules != alone.schedules:
            return "learning rate schedulers step more or less often than in one process"
        if rank.options != alone.options:
            return f"the optimizer's options differ from those of one process: {_difference(rank, alone)}"
        ratio = rank.gradient / alone.gradient if alone.gradient > 0 else math.inf
        if not 1 / OTHER_GRADIENTS <= ratio <= OTHER_GRADIENTS:
            return (
                f"gradients are {ratio:.2g} times as large as in one process, so the ranks do not average a mean over"
                " samples"
            )
    return None


def _difference(rank: RankEvidence, alone: RankEvidence) -> str:
    """The first option that differs, as ``lr 0.002, not 0.001``."""
    for theirs, own in zip(rank.options, alone.options, strict=False):
        for name in (*own, *theirs):
            if theirs.get(name) != own.get(name):
                return f"{name} {theirs.get(name)}, not {own.get(name)}"
    return "another number of parameter groups"
