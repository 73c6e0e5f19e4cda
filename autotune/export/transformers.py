"""For Hugging Face's Trainer: `TrainingArguments`."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.export.python import STATEMENTS, argument, backend, call, knob, module
from autotune.export.target import Line, Missing, Plan, Target, line

PLACE = "TrainingArguments"
PRECISION = {"bf16": "bf16", "fp16": "fp16", "tf32": "tf32"}


def _processes(plan: Plan) -> tuple[Line | Missing, ...]:
    device = line(PLACE, "use_cpu=True") if plan.device == "cpu" else ()
    start = line("start", plan.command) if plan.settings.processes > 1 else ()
    return (*device, *start)


def _batch_size(plan: Plan) -> tuple[Line | Missing, ...]:
    """The batch of one device; `Trainer` feeds all visible GPUs where there is one process."""
    devices = plan.gpus if plan.settings.data_parallel else 1
    return line(PLACE, f"per_device_train_batch_size={-(-plan.settings.batch_size // max(1, devices))}")


def _data_parallel(plan: Plan) -> tuple[Line | Missing, ...]:
    """`Trainer` uses `DataParallel` by itself in one process that sees several GPUs."""
    if plan.settings.data_parallel:
        return line("comment", "DataParallel: Trainer uses it by itself where one process sees several GPUs")
    alone = plan.settings.processes == 1 and plan.gpus > 1
    return line("start", f"CUDA_VISIBLE_DEVICES=0 {plan.command}") if alone else ()


def _optimizer(plan: Plan) -> tuple[Line | Missing, ...]:
    """``optim`` names optimizer and implementation at once, and the profile does not know the optimizer."""
    impl = plan.settings.optimizer_impl
    if impl == "fused":
        return (
            Line("comment", "optim is for AdamW, Trainer's own optimizer: leave it out where you use another"),
            Line(PLACE, 'optim="adamw_torch_fused"'),
        )
    if impl == "default":
        return (Missing('optim="adamw_torch" is AdamW that way; without it Trainer takes the fused one'),)
    return (Missing(f"optim has no name for it: Trainer(optimizers=(AdamW(..., {impl}=True), None))"),)


def _precision(plan: Plan) -> tuple[Line | Missing, ...]:
    name = PRECISION.get(plan.settings.precision)
    return line(PLACE, f"{name}=True") if name else ()


def _compile(plan: Plan) -> tuple[Line | Missing, ...]:
    mode = plan.settings.compile
    if mode == "off":
        return ()
    return Line(PLACE, "torch_compile=True"), Line(PLACE, f'torch_compile_mode="{mode}"')


def _layout(_plan: Plan, lines: Mapping[str, list[str]]) -> list[str]:
    start = [f"# Start with: {text}" for text in lines.get("start", [])]
    notes = [f"# {text}" for text in lines.get("comment", [])]
    imports = ["import torch", "from transformers import TrainingArguments"]
    arguments = ['output_dir="output"', *lines[PLACE]]
    return [*start, *notes, *module(imports, lines, call("arguments = TrainingArguments", arguments))]


TRANSFORMERS = Target(
    name="transformers",
    what="Transformers' TrainingArguments",
    rows={
        **STATEMENTS,
        "processes": _processes,
        "backend": backend(PLACE, lambda plan: f'ddp_backend="{plan.exchange}"'),
        "data_parallel": _data_parallel,
        "binding": lambda plan: () if plan.settings.binding == "none" else line("start", plan.command),
        "batch_size": _batch_size,
        "num_workers": knob(PLACE, "dataloader_num_workers", "num_workers"),
        "prefetch_factor": knob(PLACE, "dataloader_prefetch_factor", "prefetch_factor"),
        "persistent_workers": knob(PLACE, "dataloader_persistent_workers", "persistent_workers"),
        "pin_memory": knob(PLACE, "dataloader_pin_memory", "pin_memory"),
        "worker_start": argument(
            PLACE,
            "dataloader_multiprocessing_context",
            lambda plan: None if plan.settings.worker_start == "default" else plan.settings.worker_start,
        ),
        "optimizer_impl": _optimizer,
        "precision": _precision,
        "compile": _compile,
    },
    layout=_layout,
)
