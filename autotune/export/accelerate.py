"""For Accelerate: its configuration file, and the command that takes it."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.export.shell import VARIABLES, assignments
from autotune.export.target import Line, Missing, Plan, Target, line

CONFIG = "accelerate.yaml"
MIXED = {"fp32": "no", "tf32": "no", "bf16": "bf16", "fp16": "fp16"}


def _several_on_cpus(plan: Plan) -> bool:
    """Its own launcher starts several CPU processes only on hosts of MPI; under torchrun it takes part as it is."""
    return plan.device == "cpu" and plan.settings.processes > 1


def _processes(plan: Plan) -> tuple[Line | Missing, ...]:
    kind = "NO" if plan.settings.processes == 1 else "MULTI_CPU" if plan.device == "cpu" else "MULTI_GPU"
    return (
        Line("config", f"distributed_type: '{kind}'"),
        Line("config", f"num_processes: {plan.settings.processes}"),
        Line("config", f"use_cpu: {str(plan.device == 'cpu').lower()}"),
    )


def _precision(plan: Plan) -> tuple[Line | Missing, ...]:
    mixed = Line("config", f"mixed_precision: '{MIXED[plan.settings.precision]}'")
    return (mixed, Missing()) if plan.settings.precision == "tf32" else (mixed,)


def _compile(plan: Plan) -> tuple[Line | Missing, ...]:
    mode = plan.settings.compile
    if mode == "off":
        return ()
    return (
        Line("config", "dynamo_config:"),
        Line("config", "  dynamo_backend: INDUCTOR"),
        Line("config", f"  dynamo_mode: {mode}"),
    )


def _layout(plan: Plan, lines: Mapping[str, list[str]]) -> list[str]:
    if _several_on_cpus(plan):
        note = "# `accelerate launch` starts several CPU processes only over MPI; torchrun starts them too:"
        return [note, assignments(lines, f"{_own_variables(plan)} {plan.command}")]
    threads = f"--num_cpu_threads_per_process {plan.settings.threads}"
    start = f"accelerate launch --config_file {CONFIG} {threads} train.py"
    fixed = ["compute_environment: LOCAL_MACHINE", "machine_rank: 0", "num_machines: 1", "main_training_function: main"]
    return ["# Start with:", f"#   {assignments(lines, start)}", f"# and this in {CONFIG}:", *fixed, *lines["config"]]


def _own_variables(plan: Plan) -> str:
    """What `Accelerator` reads where its own launcher did not start it."""
    found = {"ACCELERATE_USE_CPU": "true", "ACCELERATE_MIXED_PRECISION": MIXED[plan.settings.precision]}
    if plan.settings.compile != "off":
        found |= {"ACCELERATE_DYNAMO_BACKEND": "INDUCTOR", "ACCELERATE_DYNAMO_MODE": plan.settings.compile}
    return " ".join(f"{name}={value}" for name, value in found.items())


def _binding(plan: Plan) -> tuple[Line | Missing, ...]:
    """Torchrun's command binds; Accelerate's own starter does not."""
    if plan.settings.binding == "none":
        return ()
    return line("command", "") if _several_on_cpus(plan) else (Missing(),)


ACCELERATE = Target(
    name="accelerate",
    what="Accelerate",
    rows={
        **VARIABLES,
        "processes": _processes,
        "precision": _precision,
        "compile": _compile,
        "binding": _binding,
    },
    layout=_layout,
)
