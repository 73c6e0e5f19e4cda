"""A profile's level for another launcher or trainer, fitted to this machine: what ``autotune export`` prints.

What a knob says there stands with the knob, see `autotune.knobs.exported`. Here its lines are laid out for each target.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from autotune.errors import UsageError
from autotune.knobs import binding
from autotune.knobs import exported as rows
from autotune.knobs.allocator import GLIBC_VARIABLES
from autotune.knobs.backend import BACKENDS
from autotune.knobs.knob import Count, Knob
from autotune.knobs.precision import MIXED
from autotune.knobs.settings import KNOBS, Settings
from autotune.launch.command import TORCHRUN_MODULE, command, environment, system_tools
from autotune.near import did_you_mean
from autotune.probes.facts import Inventory
from autotune.probes.inventory import probe
from autotune.profiles.clamp import clamp, for_this_machine
from autotune.profiles.file import read
from autotune.report.result import batch_note

STARTED = ["python", "-m", TORCHRUN_MODULE]
WRITTEN = {
    rows.ENVIRONMENT: "export {}",
    rows.START: "# Start with: {}",
    rows.COMMENT: "# {}",
    **dict.fromkeys((rows.TRAINER, rows.LOADER, rows.ARGUMENTS), "    {},"),
}
"""How the lines of a place are written; those of other places stand as they are."""


@dataclass(frozen=True)
class Target:
    """One launcher or trainer.

    Attributes:
        name: as ``--to`` takes it.
        what: what it prints, for people.
        layout: its text. In braces: the lines of a place, and the fields of `_fields`.
    """

    name: str
    what: str
    layout: str


_ACCELERATE = """\
# Start with:
#   {variables}accelerate launch --config_file accelerate.yaml --num_cpu_threads_per_process {threads} train.py
# and this in accelerate.yaml:
compute_environment: LOCAL_MACHINE
machine_rank: 0
num_machines: 1
main_training_function: main
{config}"""
_ACCELERATE_ON_CPUS = """\
# `accelerate launch` starts several CPU processes only over MPI; torchrun starts them too:
{variables}{accelerate}{started}
"""
_LIGHTNING = """\
import os

import torch
from lightning import Trainer
{strategy}
{code}trainer = Trainer(
{Trainer})
# your loader: DataLoader(dataset, shuffle=True, **loader_arguments)
loader_arguments = dict(
{DataLoader})
"""
_TRANSFORMERS = """\
{start}{comment}import torch
from transformers import TrainingArguments

{code}arguments = TrainingArguments(
    output_dir="output",
{TrainingArguments})
"""
TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target(rows.ENV, "variables of a shell", "{environment}"),
        Target(rows.TORCHRUN, "torchrun's command line", "{variables}{started}\n"),
        Target(rows.ACCELERATE, "Accelerate", _ACCELERATE),
        Target(rows.LIGHTNING, "arguments of Lightning's Trainer and of a DataLoader", _LIGHTNING),
        Target(rows.TRANSFORMERS, "Transformers' TrainingArguments", _TRANSFORMERS),
    )
}


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


def plan_of(settings: Settings, device: str, inventory: Inventory) -> rows.Plan:
    """Return ``settings`` with the environment and the command that torchrun needs for them on this machine."""
    row = BACKENDS[settings.backend] if settings.backend else None
    exchange = "gloo" if row is not None and row.module else settings.backend
    started = settings.but(backend=exchange)
    added = environment(started, inventory, {})
    words = command(started, "train.py", (), "python", binder=system_tools(binding.plan(started, inventory)))
    words = ["torchrun", *words[3:]] if words[:3] == STARTED else words
    malloc = GLIBC_VARIABLES if settings.malloc == "keep" else {}
    return rows.Plan(
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


def text(target: Target, plan: rows.Plan, head: Iterable[str]) -> str:
    """Return what to paste, with comments around it. Every knob is expressed, or named with the reason.

    Args:
        target: what it is for.
        plan: what is exported.
        head: lines that stand first, as comments.
    """
    lines: dict[str, list[str]] = defaultdict(list)
    by_hand: list[str] = []
    nothing: list[str] = []
    for knob in KNOBS:
        said = _said(knob, target, plan)
        for one in said:
            if isinstance(one, rows.Line):
                lines[one.place].append(one.text)
            else:
                plain = knob.plain(plan) if knob.plain else "no other program knows this knob"
                by_hand.append(f"#   {knob.name}={getattr(plan.settings, knob.name)}: {one.reason or plain}")
        nothing += [] if said else [knob.name]
    several_on_cpus = plan.device == "cpu" and plan.settings.processes > 1
    layout = _ACCELERATE_ON_CPUS if target.name == rows.ACCELERATE and several_on_cpus else target.layout
    return "\n".join(
        [
            *(f"# {words}" for words in head),
            *layout.format_map(_fields(plan, lines)).splitlines(),
            *([f"# Not in {target.what}, so by hand:", *by_hand] if by_hand else []),
            *([f"# As PyTorch does by itself: {', '.join(nothing)}"] if nothing else []),
        ]
    )


def _said(knob: Knob, target: Target, plan: rows.Plan) -> rows.Said:
    row, reason = knob.export.get(target.name), plan.why_not(knob.name)
    said = row(plan) if row is not None else () if _idle(knob, plan) else (rows.Missing(),)
    if not reason:
        return said
    return (*(one for one in said if isinstance(one, rows.Line)), rows.Missing(reason))


def _idle(knob: Knob, plan: rows.Plan) -> bool:
    """Return True if the knob's value is what PyTorch does by itself, so that there is nothing to write."""
    value = getattr(plan.settings, knob.name)
    number = isinstance(knob.kind, Count) and value is not None
    return bool(value == knob.neutral) and (not number or knob.name == "processes")


def _fields(plan: rows.Plan, lines: Mapping[str, list[str]]) -> Mapping[str, object]:
    """Return what layouts have in braces: each place's lines, and what is made of the whole plan."""
    settings = plan.settings
    accelerate = {"ACCELERATE_USE_CPU": "true", "ACCELERATE_MIXED_PRECISION": MIXED[settings.precision]}
    if settings.compile != "off":
        accelerate |= {"ACCELERATE_DYNAMO_BACKEND": "INDUCTOR", "ACCELERATE_DYNAMO_MODE": settings.compile}
    several = "from lightning.pytorch.strategies import DDPStrategy\n" if settings.processes > 1 else ""
    return {
        **{place: _block(WRITTEN.get(place, "{}"), lines[place]) for place in rows.PLACES},
        "variables": "".join(f"{text} " for text in lines[rows.ENVIRONMENT]),
        "started": plan.command,
        "threads": settings.threads,
        "accelerate": "".join(f"{name}={value} " for name, value in accelerate.items()),
        "strategy": several,
    }


def _block(written: str, lines: Iterable[str]) -> str:
    return "".join(f"{written}\n".format(text) for text in lines)
