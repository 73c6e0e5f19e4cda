"""Says knobs in the words of other launchers and trainers: the rows that stand with each knob, for `autotune.export`.

A target is a key of `Knob.export`. A knob without a row there is shown as plain PyTorch code, in a comment.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

ENV, TORCHRUN, ACCELERATE, LIGHTNING, TRANSFORMERS = "env", "torchrun", "accelerate", "lightning", "transformers"
SHELLS = (ENV, TORCHRUN, ACCELERATE)
"""Targets that take variables of the environment."""
ENVIRONMENT, COMMAND, CONFIG, START, COMMENT = "environment", "command", "config", "start", "comment"
CODE, TRAINER, LOADER, ARGUMENTS = "code", "Trainer", "DataLoader", "TrainingArguments"
PLACES = (ENVIRONMENT, COMMAND, CONFIG, START, COMMENT, CODE, TRAINER, LOADER, ARGUMENTS)
"""Places in a target's text: statements, and calls with one argument a line."""


@dataclass(frozen=True)
class Plan:
    """The settings that are exported.

    Attributes:
        settings: `autotune.knobs.settings.Settings`, fitted to this machine.
        device: ``cpu`` or ``cuda``.
        gpus: how many are visible here.
        environment: variables that each process starts with, those of the libraries included.
        missing: why a knob could not be put into the environment, by knob.
        command: torchrun's command line for ``train.py``, without variables; plain Python for one process.
        exchange: the backend that torchrun starts; another than the settings' if those need MPI or a module.
    """

    settings: Any
    device: str = "cpu"
    gpus: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    command: str = "python train.py"
    exchange: str | None = None

    def why_not(self, knob: str) -> str:
        """Return why no other launcher runs ``knob`` as it was measured; empty if one does."""
        measured = self.settings.backend
        if knob == "backend" and self.exchange != measured:
            return (
                f"torchrun starts {self.exchange}, whose rate was not measured here;"
                f" autotune run starts {measured} as measured"
            )
        return self.missing.get(knob, "")


@dataclass(frozen=True)
class Line:
    """A line to paste, and the part of the target's text that it belongs to. Without text the knob is there already."""

    place: str
    text: str = ""


@dataclass(frozen=True)
class Missing:
    """Why a target cannot express a knob; if empty, the plain PyTorch code is shown."""

    reason: str = ""


Said = tuple[Line | Missing, ...]
Row = Callable[[Plan], Said]
"""What a target makes of one knob; empty if there is nothing to do."""


def argument(place: str, name: str, value: Callable[[Any], Any]) -> Row:
    """Return a row of one argument of the call ``place``: ``value`` of the settings; None is nothing to do."""
    return lambda plan: () if (found := value(plan.settings)) is None else (Line(place, f"{name}={found!r}"),)


def in_loader(name: str, value: Callable[[Any], Any]) -> dict[str, Row]:
    """Return rows of the training loader's argument ``name``."""
    return {
        LIGHTNING: argument(LOADER, name, value),
        TRANSFORMERS: argument(ARGUMENTS, f"dataloader_{name}", value),
    }


def statement(code: Callable[[Any], str]) -> dict[str, Row]:
    """Return rows of one statement in front of the trainer; empty text is nothing to do."""

    def row(plan: Plan) -> Said:
        text = code(plan.settings)
        return (Line(CODE, text),) if text else ()

    return dict.fromkeys((LIGHTNING, TRANSFORMERS), row)


def in_shells(*names: str) -> dict[str, Row]:
    """Return rows of the variables ``names``, as far as the plan has them."""
    return dict.fromkeys(SHELLS, lambda plan: variables(plan, *names))


def variables(plan: Plan, *names: str) -> Said:
    """Return a line of each variable of ``names`` that the plan has. Libraries that are preloaded already stay."""
    kept = {"LD_PRELOAD": '"${LD_PRELOAD:+$LD_PRELOAD:}"'}
    found = [(name, value) for name, value in plan.environment.items() if name in names]
    return tuple(Line(ENVIRONMENT, f"{name}={kept.get(name, '')}{shlex.quote(value)}") for name, value in found)


def before_python(plan: Plan, *names: str) -> str:
    """Return the variables ``names``, which must be there when Python starts."""
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in plan.environment.items() if name in names)
