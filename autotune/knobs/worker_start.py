"""The start method of loader workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune.knobs.exported import in_loader
from autotune.knobs.knob import Choices, Chosen, Context, Effect, Knob, Training, Word
from autotune.knobs.num_workers import has_workers

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

START_METHODS = ("default", "fork", "spawn", "forkserver")


def _worker_start(context: Context) -> Choices:
    fresh = "starts each worker as a new Python, which imports the script again: never quicker than a fork"
    left_out = tuple((method, fresh) for method in START_METHODS[2:])
    usual = context.inventory.software.start_method
    if context.cuda:
        return Choices(("default",), (("fork", "a process that uses CUDA should not be forked"), *left_out))
    if usual == "fork":
        return Choices(("default",), (("fork", "it is the default here"), *left_out))
    if context.inventory.software.platform != "linux":
        return Choices(("default",), (("fork", f"not safe on {context.inventory.software.platform}"), *left_out))
    return Choices(("default", "fork"), left_out)


def _on_loader(settings: Chosen, loader: DataLoader[Any], _training: Training) -> dict[str, Any]:
    """Set it if the user has not chosen one."""
    chosen = loader.multiprocessing_context is not None or loader.num_workers > 0
    wanted = settings.worker_start != "default" and settings.num_workers > 0
    return {"multiprocessing_context": settings.worker_start} if wanted and not chosen else {}


WORKER_START = Knob(
    name="worker_start",
    what="how loader workers are started",
    offered="default; fork on Linux where Python's default is another (3.14), CPU training only",
    kind=Word(START_METHODS),
    neutral="default",
    applied="loader",
    choices=_worker_start,
    applies=has_workers,
    why={
        "fork": "workers start without new imports",
        "spawn": "workers start from a fresh Python",
        "forkserver": "workers start from a clean process",
        "default": "Python's own choice is fastest here",
    },
    effect=Effect(0.05),
    on_loader=_on_loader,
    plain=lambda plan: f"DataLoader(..., multiprocessing_context={plan.settings.worker_start!r})",
    export=in_loader(
        "multiprocessing_context",
        lambda settings: None if settings.worker_start == "default" else settings.worker_start,
    ),
)
