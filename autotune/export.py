"""A profile's level for another launcher or trainer, fitted to this machine: what ``autotune export`` prints.

A knob that a target cannot express is shown as plain PyTorch code, in a comment: `Knob.plain`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from autotune.devices import Device
from autotune.errors import UsageError, did_you_mean
from autotune.knobs import binding
from autotune.knobs.backend import BACKENDS
from autotune.knobs.knob import Count, Knob, Plan
from autotune.knobs.settings import BY_NAME, KNOBS, Settings
from autotune.launch.command import TORCHRUN_MODULE, command, environment, system_tools
from autotune.probes.facts import Inventory
from autotune.probes.inventory import probe
from autotune.profiles.clamp import clamp, for_this_machine
from autotune.profiles.registry import read
from autotune.report.result import batch_note

VARIABLES = tuple(knob.name for knob in KNOBS if knob.variables is not None)
"""Knobs that variables of a shell express."""
LOADER = ("num_workers", "prefetch_factor", "worker_start", "pin_memory", "batch_size")
MIXED = {"fp32": "no", "tf32": "no", "bf16": "bf16", "fp16": "fp16"}
"""Accelerate's names of precisions."""
TRAINER_PRECISION = {"fp32": "32-true", "tf32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}
"""Lightning's."""
LIGHTNING = {"cuda": "gpu"}
"""Lightning's names of devices that PyTorch calls otherwise."""
OPTIM = {
    "default": 'optim="adamw_torch" is AdamW that way; without it Trainer takes the fused one',
    "foreach": "optim has no name for it: Trainer(optimizers=(AdamW(..., foreach=True), None))",
    "fused": "optim is for AdamW, Trainer's own optimizer: leave it out if you use another",
}
"""How Transformers' ``optim``, which also names the optimizer, expresses an implementation."""
Text = tuple[list[str], tuple[str, ...]]
"""Lines to paste, and the knobs that they express."""


def exported(path: Path | str, level: str | None, to: str) -> str:
    """Return a level of the profile at ``path`` for the target ``to``."""
    if to not in TARGETS:
        hint = did_you_mean(to.lower(), TARGETS)
        raise UsageError(f"--to {to}: no such target; targets are {', '.join(TARGETS)}{hint}")
    profile = read(path)
    name = profile.checked_level(level)
    inventory = probe()
    wanted, grown = for_this_machine(profile, name, inventory)
    settings, notes = clamp(wanted, inventory)
    head = [
        f"level {name} of {path} ({profile.target.name}): {TARGETS[to][0]}",
        *grown,
        *notes,
        *filter(None, [profile.unproven(name), batch_note(profile, profile.levels[name])]),
    ]
    return text(to, plan_of(settings, profile.target.where, inventory), head, profile.baseline)


def plan_of(settings: Settings, device: Device, inventory: Inventory) -> Plan:
    """Return ``settings`` with the environment and the command that torchrun needs for them on this machine."""
    row = BACKENDS[settings.backend] if settings.backend else None
    torchrun_backend = "gloo" if row is not None and row.module else settings.backend
    started = settings.but(backend=torchrun_backend)
    added = environment(started, inventory, {}, plain=True)
    start = command(started, "train.py", (), "python", binder=system_tools(binding.plan(started, inventory)))
    return Plan(
        settings=settings,
        device=device,
        gpus=len(inventory.gpus),
        environment=added.set,
        missing=added.not_applied,
        command=shlex.join(start).replace(f"python -m {TORCHRUN_MODULE}", "torchrun"),
        torchrun_backend=torchrun_backend,
    )


def text(to: str, plan: Plan, head: Iterable[str], own: Settings | None = None) -> str:
    """Return what to paste for the target ``to``, after the lines ``head`` as comments. Every knob is expressed, or
    named with the reason; what the user's ``own`` settings have already is only named."""
    what, write = TARGETS[to]
    lines, knobs = write(plan)
    moved = [knob for knob in KNOBS if not _idle(knob, plan.settings)]
    unsaid = {knob.name: knob.plain(plan) for knob in moved if knob.name not in knobs}
    changed = unsaid if own is None else plan.settings.difference(own)
    notes = {name: words for name, words in unsaid.items() if name in changed} | dict(plan.missing)
    kept = [f"{name}={getattr(plan.settings, name)}" for name in unsaid if name not in notes]
    if plan.torchrun_backend != plan.settings.backend:
        notes["backend"] = (
            f"torchrun starts {plan.torchrun_backend}, whose rate was not measured here;"
            f" autotune run starts {plan.settings.backend} as measured"
        )
    by_hand = [f"#   {name}={getattr(plan.settings, name)}: {notes[name]}" for name in BY_NAME if name in notes]
    written = "\n".join((*lines, *by_hand, *kept))
    idle = [knob.name for knob in KNOBS if knob not in moved and f"{knob.name}=" not in written]
    return "\n".join(
        [
            *(f"# {' '.join(words.split())}" for words in head),
            *lines,
            *([f"# Not in {what}, so by hand:", *by_hand] if by_hand else []),
            *([f"# As in your own settings: {', '.join(kept)}"] if kept else []),
            *([f"# As PyTorch does by itself: {', '.join(idle)}"] if idle else []),
        ]
    )


def _idle(knob: Knob, settings: Settings) -> bool:
    """Return True if the knob's value is what PyTorch does by itself, so that there is nothing to write."""
    value = getattr(settings, knob.name)
    number = isinstance(knob.kind, Count) and value is not None
    return bool(value == knob.neutral) and (not number or knob.name == "processes")


# Targets --------------------------------------------------------------------------------------------------------------


def _env(plan: Plan) -> Text:
    return [f"export {each}" for each in _variables(plan)], VARIABLES


def _torchrun(plan: Plan) -> Text:
    return [" ".join([*_variables(plan), plan.command])], (*VARIABLES, "processes", "binding")


def _accelerate(plan: Plan) -> Text:
    """Write Accelerate's configuration. Several processes on CPUs need torchrun, and variables in its place."""
    settings, mixed = plan.settings, MIXED[plan.settings.precision]
    knobs = (*VARIABLES, "processes", "compile", *(["precision"] if settings.precision != "tf32" else []))
    if plan.device.on_host and settings.processes > 1:
        variables = {"ACCELERATE_USE_CPU": "true", "ACCELERATE_MIXED_PRECISION": mixed}
        if settings.compile != "off":
            variables |= {"ACCELERATE_DYNAMO_BACKEND": "INDUCTOR", "ACCELERATE_DYNAMO_MODE": settings.compile}
        own = (f"{name}={value}" for name, value in variables.items())
        why = "# `accelerate launch` starts several CPU processes only over MPI; torchrun starts them too:"
        return [why, " ".join([*_variables(plan), *own, plan.command])], (*knobs, "binding")
    options = f"--config_file accelerate.yaml --num_cpu_threads_per_process {settings.threads}"
    dynamo = ["dynamo_config:", "  dynamo_backend: INDUCTOR", f"  dynamo_mode: {settings.compile}"]
    lines = [
        "# Start with:",
        f"#   {' '.join([*_variables(plan), 'accelerate launch', options, 'train.py'])}",
        "# and this in accelerate.yaml:",
        "compute_environment: LOCAL_MACHINE",
        "machine_rank: 0",
        "num_machines: 1",
        "main_training_function: main",
        f"distributed_type: '{'NO' if settings.processes == 1 else 'MULTI_GPU'}'",
        f"num_processes: {settings.processes}",
        f"use_cpu: {str(plan.device.on_host).lower()}",
        *(dynamo if settings.compile != "off" else []),
        f"mixed_precision: '{mixed}'",
    ]
    return lines, knobs


def _lightning(plan: Plan) -> Text:
    settings, trainer = plan.settings, list[str]()
    trainer += [f'accelerator="{LIGHTNING.get(plan.device.type, plan.device.type)}"', f"devices={settings.processes}"]
    if settings.backend is not None:
        trainer.append(f'strategy=DDPStrategy(process_group_backend="{plan.torchrun_backend}")')
    if settings.cudnn_benchmark:
        trainer.append("benchmark=True")
    trainer.append(f'precision="{TRAINER_PRECISION[settings.precision]}"')
    lines = [
        "import os",
        "",
        "import torch",
        "from lightning import Trainer",
        *(["from lightning.pytorch.strategies import DDPStrategy"] if settings.processes > 1 else []),
        "",
        # without the variable Lightning sets threads itself, and its own processes inherit them
        f'os.environ["OMP_NUM_THREADS"] = "{settings.threads}"',
        *_statements(plan, "threads", "interop_threads"),
        *(['torch.set_float32_matmul_precision("high")'] if settings.precision == "tf32" else []),
        *_statements(plan, "matmul_precision"),
        *_call("trainer = Trainer", trainer),
        "# your loader: DataLoader(dataset, shuffle=True, **loader_arguments)",
        *_call("loader_arguments = dict", [f"{name}={value!r}" for name, value in _loader(settings).items()]),
    ]
    knobs = ("processes", "threads", "interop_threads", "backend", *LOADER, "cudnn_benchmark")
    return lines, (*knobs, "precision", "matmul_precision")


def _transformers(plan: Plan) -> Text:
    """Write arguments of `Trainer`. One process that sees several GPUs would use `torch.nn.DataParallel`."""
    settings, start, optim = plan.settings, "", plan.settings.optimizer_impl
    if settings.processes > 1 or settings.binding != "none":
        start = plan.command
    elif plan.gpus > 1:
        start = f"CUDA_VISIBLE_DEVICES=0 {plan.command}"
    own = {"batch_size": "per_device_train_batch_size"}
    loader = {own.get(name, f"dataloader_{name}"): value for name, value in _loader(settings).items()}
    arguments = [
        'output_dir="output"',
        *(["use_cpu=True"] if plan.device.on_host else []),
        *([f'ddp_backend="{plan.torchrun_backend}"'] if settings.backend is not None else []),
        *(f"{name}={value!r}" for name, value in loader.items()),
        *(['optim="adamw_torch_fused"'] if optim == "fused" else []),
        *(["torch_compile=True", f'torch_compile_mode="{settings.compile}"'] if settings.compile != "off" else []),
        *([f"{settings.precision}=True"] if settings.precision != "fp32" else []),
    ]
    lines = [
        *([f"# Start with: {start}"] if start else []),
        f"# optimizer_impl={optim}: {OPTIM[optim]}",
        "import torch",
        "from transformers import TrainingArguments",
        "",
        *_statements(plan, "threads", "interop_threads", "cudnn_benchmark", "matmul_precision"),
        *_call("arguments = TrainingArguments", arguments),
    ]
    knobs = ("processes", "threads", "interop_threads", "backend", "binding", *LOADER, "optimizer_impl")
    return lines, (*knobs, "cudnn_benchmark", "compile", "precision", "matmul_precision")


def _variables(plan: Plan) -> list[str]:
    """Return ``NAME=value`` of each variable. Libraries that are preloaded already stay."""
    kept = {"LD_PRELOAD": '"${LD_PRELOAD:+$LD_PRELOAD:}"'}
    return [f"{name}={kept.get(name, '')}{shlex.quote(value)}" for name, value in plan.environment.items()]


def _statements(plan: Plan, *names: str) -> list[str]:
    """Return plain PyTorch code for the knobs ``names``, of those that are not idle."""
    return [BY_NAME[name].plain(plan) for name in names if not _idle(BY_NAME[name], plan.settings)]


def _loader(settings: Settings) -> dict[str, Any]:
    """Return arguments of a `DataLoader`."""
    start = None if settings.worker_start == "default" else settings.worker_start
    found: dict[str, Any] = {"num_workers": settings.num_workers, "prefetch_factor": settings.prefetch_factor}
    found |= {"multiprocessing_context": start, "pin_memory": settings.pin_memory, "batch_size": settings.batch_size}
    return {name: value for name, value in found.items() if value is not None}


def _call(name: str, arguments: Iterable[str]) -> list[str]:
    """Return lines of a call with one argument a line."""
    return [f"{name}(", *(f"    {each}," for each in arguments), ")"]


TARGETS: dict[str, tuple[str, Callable[[Plan], Text]]] = {
    "env": ("variables of a shell", _env),
    "torchrun": ("torchrun's command line", _torchrun),
    "accelerate": ("Accelerate", _accelerate),
    "lightning": ("arguments of Lightning's Trainer and of a DataLoader", _lightning),
    "transformers": ("Transformers' TrainingArguments", _transformers),
}
"""By the name that ``--to`` takes: a description for people, and the function that writes a plan."""
