"""Each knob as plain PyTorch code: what a script says itself where its launcher or trainer has no place for it."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from autotune.export.target import Plan
from autotune.knobs.knob import Count, Knob
from autotune.knobs.malloc import GLIBC_KEEPS
from autotune.knobs.omp_wait_policy import OMP_WAIT_POLICY

PRECISION = {
    "fp32": "no autocast",
    "tf32": "torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True",
    "bf16": 'with torch.autocast("{device}", dtype=torch.bfloat16): around the forward pass',
    "fp16": 'with torch.autocast("{device}", dtype=torch.float16): around the forward pass, and torch.amp.GradScaler',
}


def idle(knob: Knob, plan: Plan) -> bool:
    """True where the knob's value is what PyTorch does by itself, so that there is nothing to write."""
    value = getattr(plan.settings, knob.name)
    number = isinstance(knob.kind, Count) and value is not None
    return value == knob.neutral and (not number or knob.name == "processes")


def in_python(knob: str, plan: Plan) -> str:
    """What a script would say for ``knob``."""
    return PLAIN[knob](getattr(plan.settings, knob), plan) if knob in PLAIN else "no other program knows this knob"


def before_python(plan: Plan, *names: str) -> str:
    """Variables that must be there when Python starts."""
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in variables(plan).items() if name in names)


def variables(plan: Plan) -> dict[str, str]:
    """Every variable of each process: those of `autotune run`, and glibc's thresholds."""
    keeps = plan.settings.malloc == "keep"
    return {**plan.environment, **(GLIBC_VARIABLES if keeps else {})}


def of_loader(argument: str) -> Callable[[object, Plan], str]:
    """An argument of the training loader."""
    return lambda value, _plan: f"DataLoader(..., {argument}={value!r})"


def _batch_size(value: object, plan: Plan) -> str:
    processes = plan.settings.processes
    each = f", of each of {processes} processes" if processes > 1 else ""
    return f"DataLoader(..., batch_size={value}){each}"


GLIBC_VARIABLES = {f"MALLOC_{name}_": str(size) for name, size in GLIBC_KEEPS.items()}

PLAIN: dict[str, Callable[[object, Plan], str]] = {
    "processes": lambda value, plan: f"start {value} processes: {plan.command}",
    "threads": lambda value, _plan: f"torch.set_num_threads({value})",
    "interop_threads": lambda value, _plan: f"torch.set_num_interop_threads({value}), before any parallel work",
    "omp_wait_policy": lambda _value, plan: f"start with {before_python(plan, OMP_WAIT_POLICY)}",
    "backend": lambda _value, plan: f'torch.distributed.init_process_group("{plan.exchange}")',
    "data_parallel": lambda _value, _plan: "model = torch.nn.DataParallel(model)",
    "binding": lambda _value, plan: f"start processes on their CPUs: {plan.command}",
    "num_workers": of_loader("num_workers"),
    "prefetch_factor": of_loader("prefetch_factor"),
    "persistent_workers": of_loader("persistent_workers"),
    "worker_start": of_loader("multiprocessing_context"),
    "pin_memory": of_loader("pin_memory"),
    "batch_size": _batch_size,
    "channels_last": lambda _value, _plan: "model = model.to(memory_format=torch.channels_last)",
    "optimizer_impl": lambda value, _plan: f"your optimizer with {value}=True",
    "allocator": lambda _value, plan: plan.missing.get("allocator") or f"start with {_preload(plan)}",
    "malloc": lambda _value, plan: f"start with {before_python(plan, *GLIBC_VARIABLES)}",
    "cudnn_benchmark": lambda _value, _plan: "torch.backends.cudnn.benchmark = True",
    "compile": lambda value, _plan: f'model = torch.compile(model, mode="{value}")',
    "precision": lambda value, plan: PRECISION[str(value)].format(device=plan.device),
    "matmul_precision": lambda value, _plan: f'torch.set_float32_matmul_precision("{value}")',
}


def _preload(plan: Plan) -> str:
    return before_python(plan, "LD_PRELOAD")
