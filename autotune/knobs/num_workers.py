"""Loader workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune.knobs.exported import in_loader
from autotune.knobs.knob import LESS, MORE, Choices, Chosen, Context, Count, Effect, Knob, Training, powers_of_two

if TYPE_CHECKING:
    from torch.utils.data import DataLoader


def has_workers(settings: Chosen) -> bool:
    """Return whether there are loader workers: `Knob.applies` of what they do."""
    return bool(settings.num_workers > 0)


def _num_workers(context: Context) -> Choices:
    budget, task = context.inventory.budget.threads, context.task
    most = min(budget, 32)
    if task.iterable:
        own = context.baseline.num_workers
        return Choices((own,), ((own + 1, "more workers would make other batches of an iterable dataset"),))
    counts = {0, 1, *powers_of_two(most), *(most * k // 4 for k in (1, 2, 3, 4))}
    if most <= 4:
        counts |= set(range(most + 1))
    return Choices(tuple(sorted(count for count in counts if count <= most)))


def _on_loader(settings: Chosen, loader: DataLoader[Any], _training: Training) -> dict[str, Any]:
    more = {"prefetch_factor": loader.prefetch_factor or 2} if settings.num_workers else {"timeout": 0}
    return {"num_workers": settings.num_workers, **more}


NUM_WORKERS = Knob(
    name="num_workers",
    what="loader workers of each process",
    words="{} loader worker{s}",
    offered="0 up to the CPU budget, where `/dev/shm` holds their batches",
    kind=Count(0, 1024),
    neutral=0,
    applied="loader",
    choices=_num_workers,
    why={MORE: "batches are prepared during training", LESS: "workers took time from training"},
    effect=Effect(0.30, 1.5),
    on_loader=_on_loader,
    plain=lambda plan: f"DataLoader(..., num_workers={plan.settings.num_workers!r})",
    export=in_loader("num_workers", lambda settings: settings.num_workers),
)
