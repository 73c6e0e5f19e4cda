"""For Lightning: arguments of `Trainer` and of the training `DataLoader`."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.export.python import LOADER, STATEMENTS, argument, backend, call, module
from autotune.export.target import Line, Missing, Plan, Target, line

PRECISION = {"fp32": "32-true", "tf32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}
TF32 = 'torch.set_float32_matmul_precision("high")'


def _threads(plan: Plan) -> tuple[Line | Missing, ...]:
    """Lightning sets threads itself where the variable is not set, and its own processes inherit it."""
    threads = plan.settings.threads
    return (
        Line("code", f'os.environ["OMP_NUM_THREADS"] = "{threads}"'),
        Line("code", f"torch.set_num_threads({threads})"),
    )


def _processes(plan: Plan) -> tuple[Line | Missing, ...]:
    accelerator = "gpu" if plan.device == "cuda" else "cpu"
    return (
        Line("Trainer", f'accelerator="{accelerator}"'),
        Line("Trainer", f"devices={plan.settings.processes}"),
    )


def _precision(plan: Plan) -> tuple[Line | Missing, ...]:
    switch = line("code", TF32) if plan.settings.precision == "tf32" else ()
    return (*switch, Line("Trainer", f'precision="{PRECISION[plan.settings.precision]}"'))


def _data_parallel(plan: Plan) -> tuple[Line | Missing, ...]:
    reason = "Lightning has no strategy for it since version 2; devices=N trains in N processes instead"
    return (Missing(reason),) if plan.settings.data_parallel else ()


def _layout(plan: Plan, lines: Mapping[str, list[str]]) -> list[str]:
    imports = ["import os", "", "import torch", "from lightning import Trainer"]
    if plan.settings.processes > 1:
        imports.append("from lightning.pytorch.strategies import DDPStrategy")
    loader = call("loader_arguments = dict", lines["DataLoader"])
    use = "# your loader: DataLoader(dataset, shuffle=True, **loader_arguments)"
    return [*module(imports, lines, call("trainer = Trainer", lines["Trainer"]), [use], loader)]


LIGHTNING = Target(
    name="lightning",
    what="arguments of Lightning's Trainer and of a DataLoader",
    rows={
        **LOADER,
        **STATEMENTS,
        "threads": _threads,
        "processes": _processes,
        "backend": backend("Trainer", lambda plan: f'strategy=DDPStrategy(process_group_backend="{plan.exchange}")'),
        "data_parallel": _data_parallel,
        "cudnn_benchmark": argument("Trainer", "benchmark", lambda plan: plan.settings.cudnn_benchmark or None),
        "precision": _precision,
    },
    layout=_layout,
)
