"""Fit settings from another machine, or another way of starting, to this machine. Pure; never raises.

The global batch is always kept: fewer processes have larger shares of it.
"""

from __future__ import annotations

from autotune.core import binding
from autotune.core.knobs import BF16_FEATURES, backend_reason
from autotune.core.settings import Settings
from probes.facts import Inventory

_FOLLOWS = {"backend", "binding", "prefetch_factor", "persistent_workers", "batch_size"}
"""Knobs whose change only follows from another's, or has a line with a reason of its own."""


def clamp(settings: Settings, inventory: Inventory) -> tuple[Settings, tuple[str, ...]]:
    """``settings`` within this machine's budget, and one line per knob that changed: "asked 16, applied 2"."""
    fitted, exchange = _with_backend(_on_device(settings, inventory), inventory)
    limit = _most_processes(fitted, inventory)
    if fitted.processes > limit:
        processes = next(count for count in range(limit, 0, -1) if fitted.global_batch % count == 0)
        fitted = with_processes(fitted, processes, inventory)
    fitted = _within(fitted, max(1, inventory.budget.threads // fitted.processes), inventory.budget.threads)
    fitted, unbound = _bindable(fitted, inventory)
    return fitted, (*exchange, *changes(settings, fitted, inventory.budget.limit), *unbound)


def launched(
    settings: Settings, inventory: Inventory, world: int, local: int, nnodes: int = 1
) -> tuple[Settings, tuple[str, ...]]:
    """``settings`` for a training that was started as ``world`` processes, ``local`` of them on this machine; they were
    measured on each of ``nnodes`` machines.

    The launcher has chosen the processes and may have bound each to its share of the CPUs, so the budget seen here may
    already be one process's share; it is split again only where the profile was measured with other processes.
    """
    fitted = _on_device(settings, inventory)
    share = inventory.budget.threads
    if fitted.processes != local:
        share = max(1, share // max(1, local))
    if fitted.processes != world:
        fitted = with_processes(fitted, world, inventory, local)
    fitted = _within(fitted, share, inventory.budget.threads)
    fitted, unbound = _bindable(fitted, inventory)
    asked = over_machines(settings, nnodes, inventory) if nnodes > 1 else settings
    return fitted, (*changes(asked, fitted, f"started as {world} processes"), *unbound)


def one_process(settings: Settings, inventory: Inventory) -> Settings:
    """``settings`` for several processes, as one process that uses the same cores and the same global batch."""
    return _within(with_processes(settings, 1, inventory), inventory.budget.threads, inventory.budget.threads)


def with_processes(settings: Settings, processes: int, inventory: Inventory, here: int | None = None) -> Settings:
    """The same global batch spread over ``processes`` processes, threads and workers over the ``here`` of them that run
    on this machine (all, where None).

    Where ``processes`` does not divide the global batch, the share is rounded up; the loader then deals the global
    batch out exactly.
    """
    total, here = settings.processes, here or processes
    spread = 1 if inventory.gpus else total
    return settings.but(
        processes=processes,
        threads=max(1, settings.threads * total // here),
        num_workers=_spread(settings.num_workers, spread, here if spread > 1 else 1),
        batch_size=-(-settings.global_batch // processes),
        backend=settings.backend if processes > 1 else None,
    )


def over_machines(settings: Settings, nnodes: int, inventory: Inventory) -> Settings:
    """``settings`` of each of ``nnodes`` machines, as all their processes together have them: the global batch of one
    machine is shared by all."""
    return with_processes(settings, nnodes * settings.processes, inventory, settings.processes)


def changes(asked: Settings, applied: Settings, reason: str) -> tuple[str, ...]:
    """One line per knob that differs, without those that only follow from others."""
    different = asked.difference(applied).items()
    return tuple(
        f"{name}: asked {wanted}, applied {got} ({reason})" for name, (wanted, got) in different if name not in _FOLLOWS
    )


def _with_backend(settings: Settings, inventory: Inventory) -> tuple[Settings, tuple[str, ...]]:
    """gloo in the place of a backend that is missing here, and a line that says so."""
    if settings.processes == 1 or settings.backend is None or not inventory.software.backends:
        return settings, ()
    reason = backend_reason(inventory, settings.backend)
    if reason is None or inventory.gpus or backend_reason(inventory, "gloo"):
        return settings, ()
    return settings.but(backend="gloo"), (f"backend: asked {settings.backend}, applied gloo ({reason})",)


def _spread(workers: int, of: int, over: int) -> int:
    """The same total of workers over other processes; at least one where there were any."""
    return max(1, workers * of // over) if workers else 0


def _most_processes(settings: Settings, inventory: Inventory) -> int:
    limit = inventory.budget.threads
    if settings.backend == "nccl":
        limit = min(limit, len(inventory.gpus))
    if settings.processes > 1 and settings.backend is not None and inventory.software.backends:
        limit = 1 if backend_reason(inventory, settings.backend) else limit
    return max(1, limit)


def _within(settings: Settings, share: int, budget: int) -> Settings:
    """Threads and workers of one process within its ``share`` of the CPU ``budget``; inter-op threads mostly wait."""
    return settings.but(
        threads=min(settings.threads, share),
        interop_threads=min(settings.interop_threads, budget),
        num_workers=min(settings.num_workers, share),
    )


def _bindable(settings: Settings, inventory: Inventory) -> tuple[Settings, tuple[str, ...]]:
    """Unbound, and why, where this machine cannot do the binding or it would do nothing."""
    reason = binding.refusal(settings, inventory)
    if reason is None:
        return settings, ()
    return settings.but(binding="none"), (f"binding: asked {settings.binding}, applied none ({reason})",)


def _on_device(settings: Settings, inventory: Inventory) -> Settings:
    """Without what this machine's devices cannot do."""
    software = inventory.software
    if settings.compile != "off" and software.compiler is None and software.compiler_reason:
        settings = settings.but(compile="off")
    return _on_gpu(settings, inventory) if inventory.gpus else _on_cpu(settings, inventory)


def _on_gpu(settings: Settings, inventory: Inventory) -> Settings:
    capability = min(gpu.capability for gpu in inventory.gpus)
    least = {"tf32": (8, 0), "bf16": (8, 0), "fp16": (7, 0)}.get(settings.precision, (0, 0))
    settings = settings.but(data_parallel=settings.data_parallel and len(inventory.gpus) > 1)
    # A slower precision that works: going from bf16 to fp16 would need a scaler nobody measured here.
    return settings.but(precision="fp32") if capability < least else settings


def _on_cpu(settings: Settings, inventory: Inventory) -> Settings:
    precision = settings.precision
    native = any(feature in BF16_FEATURES for feature in inventory.cpu.features)
    if precision in ("fp16", "tf32") or (precision == "bf16" and not native):
        precision = "fp32"
    return settings.but(
        precision=precision,
        data_parallel=False,
        pin_memory=False,
        cudnn_benchmark=False,
        backend="gloo" if settings.backend == "nccl" else settings.backend,
        compile=settings.compile if settings.compile == "off" else "default",
    )
