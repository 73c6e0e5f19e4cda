"""Batches that each loader worker prepares ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune.knobs.exported import in_loader
from autotune.knobs.knob import LESS, MORE, Choices, Chosen, Count, Effect, Knob, Training
from autotune.knobs.num_workers import has_workers

if TYPE_CHECKING:
    from torch.utils.data import DataLoader


def _first_workers(before: Any, after: Any, _settings: Chosen) -> str | None:
    return "PyTorch's default with workers" if before is None and after == PREFETCH_FACTOR.usual else None


def _on_loader(settings: Chosen, loader: DataLoader[Any], _training: Training) -> dict[str, Any]:
    return {"prefetch_factor": settings.prefetch_factor} if settings.num_workers and settings.prefetch_factor else {}


PREFETCH_FACTOR = Knob(
    name="prefetch_factor",
    what="batches each worker prepares ahead",
    words="{} batch{es} ahead",
    offered="1, 2, 4, 8",
    kind=Count(1, 1024),
    neutral=None,
    applied="loader",
    choices=lambda _context: Choices((1, 2, 4, 8)),
    applies=has_workers,
    usual=2,
    follows=True,
    why={
        MORE: "batches in hand smooth over slow ones",
        LESS: "less memory for waiting batches",
        None: "no workers, nothing to prefetch",
    },
    explained=_first_workers,
    effect=Effect(0.03, 2.0),
    on_loader=_on_loader,
    plain=lambda plan: f"DataLoader(..., prefetch_factor={plan.settings.prefetch_factor!r})",
    export=in_loader("prefetch_factor", lambda settings: settings.prefetch_factor),
)
