"""The CPUs and memory that each process keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune.knobs import cpu_binding
from autotune.knobs.affinity import BINDINGS, why_not_offered
from autotune.knobs.exported import ACCELERATE, COMMAND, START, TORCHRUN, TRANSFORMERS, Missing, Plan, Said, line
from autotune.knobs.knob import Affinity, Change, Choices, Chosen, Context, Effect, Knob, Training, Word

if TYPE_CHECKING:
    from torch.utils.data import DataLoader


class _Bound(Change):
    """What was bound before this process started, read back."""

    def __init__(self, value: str, affinity: Affinity | None) -> None:
        self._value, self._affinity = value, affinity
        self.workers: list[cpu_binding.WorkerAffinity] = []

    def why_not(self) -> str | None:
        """Return why threads or workers are not where they belong, or None."""
        missed = next(filter(None, (workers.why_not for workers in self.workers)), None)
        return cpu_binding.why_not(self._value, self._affinity) or missed


def _start(value: str, training: Training) -> Change | None:
    note = cpu_binding.memory_note(training.affinity) if value != "none" else None
    if note is not None:
        training.note(note)
    return None if value == "none" else _Bound(value, training.affinity)


def _on_loader(settings: Chosen, loader: DataLoader[Any], training: Training) -> dict[str, Any]:
    """Let loader workers run on the CPUs beside the compute threads."""
    bound = training.started.get("binding")
    if not isinstance(bound, _Bound) or training.affinity is None or settings.num_workers == 0:
        return {}
    bound.workers.append(cpu_binding.WorkerAffinity(training.affinity.workers, loader.worker_init_fn))
    return {"worker_init_fn": bound.workers[-1]}


def _binding(context: Context) -> Choices:
    reasons = why_not_offered(context.inventory)
    return Choices(tuple(name for name in BINDINGS if name not in reasons), tuple(reasons.items()))


def _binds(plan: Plan) -> bool:
    return bool(plan.settings.binding != "none")


def _accelerate(plan: Plan) -> Said:
    """Torchrun's command, which starts several processes on CPUs, binds; Accelerate's own starter does not."""
    if not _binds(plan):
        return ()
    return line(COMMAND) if plan.device == "cpu" and plan.settings.processes > 1 else (Missing(),)


BINDING = Knob(
    name="binding",
    what="CPUs and memory that each process keeps",
    words="bound to {}",
    offered="none; cores where CPUs are left to choose from; numa with several nodes; Linux without a CPU quota",
    kind=Word(BINDINGS),
    neutral="none",
    applied="launch",
    choices=_binding,
    follows=True,
    why={
        "cores": "each process keeps its cores and caches",
        "numa": "memory stays near each process's cores",
        "none": "the scheduler places threads better",
    },
    effect=Effect(0.05),
    start=_start,
    on_loader=_on_loader,
    plain=lambda plan: f"start processes on their CPUs: {plan.command}",
    export={
        TORCHRUN: lambda plan: line(COMMAND) if _binds(plan) else (),
        ACCELERATE: _accelerate,
        TRANSFORMERS: lambda plan: line(START, plan.command) if _binds(plan) else (),
    },
)
