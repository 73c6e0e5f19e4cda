"""A profile's level for another launcher or trainer, fitted to this machine: what ``autotune export`` prints.

What a knob says there stands with the knob, see `autotune.knobs.exported`. Here its lines are laid out for each target.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autotune.errors import UsageError
from autotune.knobs import binding
from autotune.knobs.allocator import GLIBC_VARIABLES
from autotune.knobs.backend import BACKENDS
from autotune.knobs.exported import (
    ACCELERATE,
    ARGUMENTS,
    CODE,
    COMMENT,
    CONFIG,
    ENV,
    ENVIRONMENT,
    LIGHTNING,
    LOADER,
    START,
    TORCHRUN,
    TRAINER,
    TRANSFORMERS,
    Line,
    Missing,
    Plan,
    Said,
)
from autotune.knobs.knob import Count, Knob
from autotune.knobs.precision import MIXED
from autotune.knobs.settings import Settings
from autotune.knobs.table import KNOBS
from autotune.launch.command import TORCHRUN_MODULE, command, environment, system_tools
from autotune.near import did_you_mean
from autotune.probes.facts import Inventory
from autotune.probes.inventory import probe
from autotune.profiles.clamp import clamp, for_this_machine
from autotune.profiles.file import read
from autotune.report.levels import batch_note

Lines = Mapping[str, list[str]]
"""Of each place."""
ACCELERATE_FILE = "accelerate.yaml"
STARTED = ["python", "-m", TORCHRUN_MODULE]


@dataclass(frozen=True)
class Target:
    """One launcher or trainer.

    Attributes:
        name: as ``--to`` takes it.
        what: what it prints, for people.
        layout: the text of all lines; the places are the keys.
    """

    name: str
    what: str
    layout: Callable[[Plan, Lines], list[str]] = field(repr=False)


def exported(path: Path, level: str | None, to: str) -> str:
    """Return a level of the profile at ``path`` for the target ``to``.

    Raises:
        UsageError: no such target, or no such level.
    """
    target, profile = target_of(to), read(path)
    name = profile.checked_level(level)
    inventory = probe()
    wanted, grown = for_this_machine(profile, name, inventory)
    settings, notes = clamp(wanted, inventory)
    head = [
        f"level {name} of {path} ({profile.target.name}): {target.what}",
        *grown,
        *notes,
        *filter(None, [batch_note(profile, profile.levels[name])]),
    ]
    return text(target, plan_of(settings, profile.target.device, inventory), head)


def plan_of(settings: Settings, device: str, inventory: Inventory) -> Plan:
    """Return ``settings`` with the environment and the command that torchrun needs for them on this machine."""
    row = BACKENDS[settings.backend] if settings.backend else None
    exchange = "gloo" if row is not None and row.module else settings.backend
    started = settings.but(backend=exchange)
    added = environment(started, inventory, {})
    words = command(started, "train.py", (), "python", binder=system_tools(binding.plan(started, inventory)))
    words = ["torchrun", *words[3:]] if words[:3] == STARTED else words
    malloc = GLIBC_VARIABLES if settings.malloc == "keep" else {}
    return Plan(
        settings=settings,
        device=device,
        gpus=len(inventory.gpus),
        environment={"OMP_NUM_THREADS": str(settings.threads), **added.set, **malloc},
        missing=dict(added.not_applied),
        command=shlex.join(words),
        exchange=exchange,
    )


def target_of(name: str) -> Target:
    """Return the target called ``name``.

    Raises:
        UsageError: there is none.
    """
    if name in TARGETS:
        return TARGETS[name]
    hint = did_you_mean(name.lower(), TARGETS)
    raise UsageError(f"--to {name}: no such target; targets are {', '.join(TARGETS)}{hint}")


def text(target: Target, plan: Plan, head: Iterable[str]) -> str:
    """Return what to paste, with comments around it. Every knob is expressed, or named with the reason.

    Args:
        target: what it is for.
        plan: what is exported.
        head: lines that stand first, as comments.
    """
    lines: dict[str, list[str]] = {}
    by_hand: list[str] = []
    nothing: list[str] = []
    for knob in KNOBS:
        said = _said(knob, target, plan)
        for one in said:
            if isinstance(one, Line):
                lines.setdefault(one.place, []).append(one.text)
            else:
                value = getattr(plan.settings, knob.name)
                by_hand.append(f"{knob.name}={value}: {one.reason or _in_python(knob, plan)}")
        nothing += [] if said else [knob.name]
    return "\n".join(
        [
            *(f"# {words}" for words in head),
            *target.layout(plan, lines),
            *_listed(f"# Not in {target.what}, so by hand:", by_hand),
            *([f"# As PyTorch does by itself: {', '.join(nothing)}"] if nothing else []),
        ]
    )


def _said(knob: Knob, target: Target, plan: Plan) -> Said:
    row = knob.export.get(target.name)
    if row is not None:
        return row(plan)
    return () if _idle(knob, plan) else (Missing(),)


def _idle(knob: Knob, plan: Plan) -> bool:
    """Return True if the knob's value is what PyTorch does by itself, so that there is nothing to write."""
    value = getattr(plan.settings, knob.name)
    number = isinstance(knob.kind, Count) and value is not None
    return bool(value == knob.neutral) and (not number or knob.name == "processes")


def _in_python(knob: Knob, plan: Plan) -> str:
    return knob.plain(plan) if knob.plain is not None else "no other program knows this knob"


def _listed(title: str, items: list[str]) -> list[str]:
    return [title, *(f"#   {item}" for item in items)] if items else []


def _assignments(lines: Lines, prefix: str) -> str:
    """Return the variables on one line, in front of ``prefix``."""
    return " ".join([*lines.get(ENVIRONMENT, []), prefix])


def _exports(_plan: Plan, lines: Lines) -> list[str]:
    return [f"export {text}" for text in lines.get(ENVIRONMENT, [])]


def _torchrun(plan: Plan, lines: Lines) -> list[str]:
    return [_assignments(lines, plan.command)]


def _accelerate(plan: Plan, lines: Lines) -> list[str]:
    """Return a configuration file and the command that takes it; of several CPU processes, torchrun's command."""
    if plan.device == "cpu" and plan.settings.processes > 1:
        note = "# `accelerate launch` starts several CPU processes only over MPI; torchrun starts them too:"
        return [note, _assignments(lines, f"{_accelerate_variables(plan)} {plan.command}")]
    threads = f"--num_cpu_threads_per_process {plan.settings.threads}"
    start = f"accelerate launch --config_file {ACCELERATE_FILE} {threads} train.py"
    fixed = ["compute_environment: LOCAL_MACHINE", "machine_rank: 0", "num_machines: 1", "main_training_function: main"]
    head = ["# Start with:", f"#   {_assignments(lines, start)}", f"# and this in {ACCELERATE_FILE}:"]
    return [*head, *fixed, *lines[CONFIG]]


def _accelerate_variables(plan: Plan) -> str:
    """Return what `Accelerator` reads if its own launcher did not start it."""
    found = {"ACCELERATE_USE_CPU": "true", "ACCELERATE_MIXED_PRECISION": MIXED[plan.settings.precision]}
    if plan.settings.compile != "off":
        found |= {"ACCELERATE_DYNAMO_BACKEND": "INDUCTOR", "ACCELERATE_DYNAMO_MODE": plan.settings.compile}
    return " ".join(f"{name}={value}" for name, value in found.items())


def _lightning(plan: Plan, lines: Lines) -> list[str]:
    imports = ["import os", "", "import torch", "from lightning import Trainer"]
    if plan.settings.processes > 1:
        imports.append("from lightning.pytorch.strategies import DDPStrategy")
    trainer, loader = _call("trainer = Trainer", lines[TRAINER]), _call("loader_arguments = dict", lines[LOADER])
    use = "# your loader: DataLoader(dataset, shuffle=True, **loader_arguments)"
    return [*imports, "", *lines.get(CODE, []), *trainer, use, *loader]


def _transformers(_plan: Plan, lines: Lines) -> list[str]:
    start = [f"# Start with: {text}" for text in lines.get(START, [])]
    notes = [f"# {text}" for text in lines.get(COMMENT, [])]
    imports = ["import torch", "from transformers import TrainingArguments"]
    arguments = _call("arguments = TrainingArguments", ['output_dir="output"', *lines[ARGUMENTS]])
    return [*start, *notes, *imports, "", *lines.get(CODE, []), *arguments]


def _call(name: str, arguments: Iterable[str]) -> list[str]:
    """Return a call with one argument a line."""
    return [f"{name}(", *(f"    {text}," for text in arguments), ")"]


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target(ENV, "variables of a shell", _exports),
        Target(TORCHRUN, "torchrun's command line", _torchrun),
        Target(ACCELERATE, "Accelerate", _accelerate),
        Target(LIGHTNING, "arguments of Lightning's Trainer and of a DataLoader", _lightning),
        Target(TRANSFORMERS, "Transformers' TrainingArguments", _transformers),
    )
}
