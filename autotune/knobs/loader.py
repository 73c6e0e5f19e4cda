"""Arguments of the training loader: its workers and what they do, pinned memory, and the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune.devices import CUDA
from autotune.knobs.backend import powers_of_two
from autotune.knobs.change import Refused, Training
from autotune.knobs.knob import FLAG, LESS, MORE, ROUNDING, Choices, Chosen, Context, Count, Knob, Plan, Word, unless

if TYPE_CHECKING:
    from torch.utils.data import DataLoader


def _has_workers(settings: Chosen) -> bool:
    return bool(settings.num_workers > 0)


def _num_workers(context: Context) -> Choices:
    budget, task = context.inventory.budget.threads, context.task
    most = min(budget, 32)
    if task.iterable:
        own = context.baseline.num_workers
        alike = (0, 1) if own < 2 else (own,)
        return dict.fromkeys(alike) | {alike[-1] + 1: "more workers would make other batches of an iterable dataset"}
    return dict.fromkeys(sorted({0, *powers_of_two(most), *(most * quarters // 4 for quarters in (1, 2, 3, 4))}))


def _with_workers(settings: Chosen, loader: DataLoader[Any], _training: Training) -> dict[str, Any]:
    more = {"prefetch_factor": loader.prefetch_factor or 2} if settings.num_workers else {"timeout": 0}
    return {"num_workers": settings.num_workers, **more}


NUM_WORKERS = Knob(
    name="num_workers",
    words="{} loader worker{s}",
    kind=Count(0, 1024),
    neutral=0,
    applied="loader",
    choices=_num_workers,
    why={MORE: "batches are prepared during training", LESS: "workers took time from training"},
    spread=0.30,
    length=1.5,
    on_loader=_with_workers,
    plain=lambda plan: f"DataLoader(..., num_workers={plan.settings.num_workers!r})",
)

PREFETCH_FACTOR = Knob(
    name="prefetch_factor",
    words="{} batch{es} ahead",
    kind=Count(1, 1024),
    neutral=None,
    applied="loader",
    choices=lambda _context: dict.fromkeys((1, 2, 4, 8)),
    applies=_has_workers,
    usual=2,
    dependent=True,
    why={
        MORE: "batches in hand smooth over slow ones",
        LESS: "less memory for waiting batches",
        None: "no workers, nothing to prefetch",
    },
    spread=0.03,
    length=2.0,
    on_loader=lambda settings, _loader, _training: (
        {"prefetch_factor": settings.prefetch_factor} if settings.prefetch_factor else {}
    ),
    plain=lambda plan: f"DataLoader(..., prefetch_factor={plan.settings.prefetch_factor!r})",
)


def _why_not_forked(context: Context) -> str | None:
    software = context.inventory.software
    if not context.device.on_host:
        return f"a process that uses {context.device.type.upper()} should not be forked"
    if software.start_method == "fork":
        return "it is the default here"
    return None if software.platform == "linux" else f"not safe on {software.platform}"


def _started(settings: Chosen, loader: DataLoader[Any], _training: Training) -> dict[str, Any]:
    """Set it if the user has not chosen one."""
    chosen = loader.multiprocessing_context is not None or loader.num_workers > 0
    return {} if chosen or settings.worker_start == "default" else {"multiprocessing_context": settings.worker_start}


WORKER_START = Knob(
    name="worker_start",
    kind=Word(("default", "fork", "spawn", "forkserver")),  # the last two are never quicker: kept if they are yours
    neutral="default",
    applied="loader",
    choices=lambda context: unless(_why_not_forked(context), "default", "fork"),
    applies=_has_workers,
    why={"fork": "workers start without new imports"}
    | dict.fromkeys(("default", "spawn", "forkserver"), "a new Python starts as fast here"),
    spread=0.05,
    on_loader=_started,
    plain=lambda plan: f"DataLoader(..., multiprocessing_context={plan.settings.worker_start!r})",
)

PIN_MEMORY = Knob(
    name="pin_memory",
    kind=FLAG,
    neutral=False,
    applied="loader",
    choices=lambda _context: dict.fromkeys((False, True)),
    devices=(CUDA,),
    why={True: "copies to the GPU overlap computation", False: "page-locking cost more than it saved"},
    spread=0.06,
    gain=lambda settings, _context: 0.03 * settings.pin_memory,
    start=lambda _value, training: None if training.device.type == CUDA.type else Refused("no CUDA device"),
    on_loader=lambda settings, _loader, training: (
        {} if training.device.type != CUDA.type else {"pin_memory": settings.pin_memory}
    ),
    plain=lambda plan: f"DataLoader(..., pin_memory={plan.settings.pin_memory!r})",
)


def batch_shares(*global_batches: int) -> list[int]:
    """Return the batches of one process, ascending, if up to 64 processes share one of ``global_batches`` equally."""
    return sorted({batch // count for batch in global_batches for count in range(1, 65) if batch % count == 0})


def _plain_batch(plan: Plan) -> str:
    processes = plan.settings.processes
    each = f", of each of {processes} processes" if processes > 1 else ""
    return f"DataLoader(..., batch_size={plan.settings.batch_size}){each}"


BATCH_SIZE = Knob(
    name="batch_size",
    words="batch {}",
    kind=Count(1, 2**24),
    neutral=1,
    applied="loader",
    choices=lambda context: dict.fromkeys(batch_shares(context.baseline.global_batch)),
    dependent=True,
    keeps=ROUNDING,
    why={MORE: "larger kernels use the hardware better", LESS: "smaller pieces fit caches and memory"},
    plain=_plain_batch,
)
