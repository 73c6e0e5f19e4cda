"""Arguments of the training loader: its workers and what they do, pinned memory, and the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune.knobs.change import Refused, Training
from autotune.knobs.choices import Choices, by_reason, powers_of_two, unless
from autotune.knobs.knob import LESS, MORE, ROUNDING, Chosen, Context, Count, Effect, Flag, Knob, Plan, Word

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

START_METHODS = ("default", "fork", "spawn", "forkserver")
IDLE_PINNING = "pinned memory only serves copies to an accelerator"


def _has_workers(settings: Chosen) -> bool:
    return bool(settings.num_workers > 0)


def _num_workers(context: Context) -> Choices:
    budget, task = context.inventory.budget.threads, context.task
    most = min(budget, 32)
    if task.iterable:
        own = context.baseline.num_workers
        return unless("more workers would make other batches of an iterable dataset", own, own + 1)
    counts = {0, 1, *powers_of_two(most), *(most * k // 4 for k in (1, 2, 3, 4))}
    if most <= 4:
        counts |= set(range(most + 1))
    return Choices(tuple(sorted(count for count in counts if count <= most)))


def _with_workers(settings: Chosen, loader: DataLoader[Any], _training: Training) -> dict[str, Any]:
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
    on_loader=_with_workers,
    plain=lambda plan: f"DataLoader(..., num_workers={plan.settings.num_workers!r})",
)


def _first_workers(before: Any, after: Any, _settings: Chosen) -> str | None:
    return "PyTorch's default with workers" if before is None and after == PREFETCH_FACTOR.usual else None


PREFETCH_FACTOR = Knob(
    name="prefetch_factor",
    what="batches each worker prepares ahead",
    words="{} batch{es} ahead",
    offered="1, 2, 4, 8",
    kind=Count(1, 1024),
    neutral=None,
    applied="loader",
    choices=lambda _context: Choices((1, 2, 4, 8)),
    applies=_has_workers,
    usual=2,
    follows=True,
    why={
        MORE: "batches in hand smooth over slow ones",
        LESS: "less memory for waiting batches",
        None: "no workers, nothing to prefetch",
    },
    explained=_first_workers,
    effect=Effect(0.03, 2.0),
    on_loader=lambda settings, _loader, _training: (
        {"prefetch_factor": settings.prefetch_factor} if settings.prefetch_factor else {}
    ),
    plain=lambda plan: f"DataLoader(..., prefetch_factor={plan.settings.prefetch_factor!r})",
)


def _worker_start(context: Context) -> Choices:
    software, reason = context.inventory.software, None
    fresh = "starts each worker as a new Python, which imports the script again: never quicker than a fork"
    if context.cuda:
        reason = "a process that uses CUDA should not be forked"
    elif software.start_method == "fork":
        reason = "it is the default here"
    elif software.platform != "linux":
        reason = f"not safe on {software.platform}"
    return by_reason({"default": None, "fork": reason, "spawn": fresh, "forkserver": fresh})


def _started(settings: Chosen, loader: DataLoader[Any], _training: Training) -> dict[str, Any]:
    """Set it if the user has not chosen one."""
    chosen = loader.multiprocessing_context is not None or loader.num_workers > 0
    return {} if chosen or settings.worker_start == "default" else {"multiprocessing_context": settings.worker_start}


WORKER_START = Knob(
    name="worker_start",
    what="how loader workers are started",
    offered="default; fork on Linux where Python's default is another (3.14), CPU training only",
    kind=Word(START_METHODS),
    neutral="default",
    applied="loader",
    choices=_worker_start,
    applies=_has_workers,
    why={
        "fork": "workers start without new imports",
        "spawn": "workers start from a fresh Python",
        "forkserver": "workers start from a clean process",
        "default": "Python's own choice is fastest here",
    },
    effect=Effect(0.05),
    on_loader=_started,
    plain=lambda plan: f"DataLoader(..., multiprocessing_context={plan.settings.worker_start!r})",
)


PIN_MEMORY = Knob(
    name="pin_memory",
    what="page-locked host batches",
    offered="off, on, with a GPU",
    kind=Flag(),
    neutral=False,
    applied="loader",
    choices=lambda context: unless(None if context.cuda else IDLE_PINNING, False, True),
    devices=("cuda",),
    why={True: "copies to the GPU overlap computation", False: "page-locking cost more than it saved"},
    effect=Effect(0.06),
    gain=lambda settings, _context: 0.03 * settings.pin_memory,
    start=lambda _value, training: Refused(f"no effect: {IDLE_PINNING}") if training.device.type == "cpu" else None,
    on_loader=lambda settings, _loader, training: (
        {} if training.device.type == "cpu" else {"pin_memory": settings.pin_memory}
    ),
    plain=lambda plan: f"DataLoader(..., pin_memory={plan.settings.pin_memory!r})",
)


def _batch_size(context: Context) -> Choices:
    batch = context.baseline.global_batch
    return Choices(tuple(sorted(batch // processes for processes in range(1, 65) if batch % processes == 0)))


def _plain_batch(plan: Plan) -> str:
    processes = plan.settings.processes
    each = f", of each of {processes} processes" if processes > 1 else ""
    return f"DataLoader(..., batch_size={plan.settings.batch_size}){each}"


BATCH_SIZE = Knob(
    name="batch_size",
    what="samples per process",
    words="batch {}",
    offered="at the same global batch; at `max` up to 32 times yours",
    kind=Count(1, 2**24),
    neutral=1,
    applied="loader",
    choices=_batch_size,
    follows=True,
    keeps=ROUNDING,
    why={MORE: "larger kernels use the hardware better", LESS: "smaller pieces fit caches and memory"},
    plain=_plain_batch,
)
