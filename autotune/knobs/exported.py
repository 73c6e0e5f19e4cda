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


@dataclass(frozen=True)
class Line:
    """A line to paste, and the part of the target's text that it belongs to."""

    place: str
    text: str


@dataclass(frozen=True)
class Missing:
    """Why a target cannot express a knob; if empty, the plain PyTorch code is shown."""

    reason: str = ""


Said = tuple[Line | Missing, ...]
Row = Callable[[Plan], Said]
"""What a target makes of one knob; empty if there is nothing to do."""


def line(place: str, text: str = "") -> Said:
    """Return one line; without text the knob stands in the ``place`` already."""
    return (Line(place, text),)


def always(place: str) -> Row:
    """Return a row for a knob that the ``place`` holds already."""
    return lambda _plan: line(place)


def argument(place: str, name: str, value: Callable[[Any], Any]) -> Row:
    """Return a row of one argument of the call ``place``: ``value`` of the settings; None is nothing to do."""
    return lambda plan: () if (found := value(plan.settings)) is None else line(place, f"{name}={found!r}")


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
        return line(CODE, text) if text else ()

    return dict.fromkeys((LIGHTNING, TRANSFORMERS), row)


def in_environment(*names: str) -> Row:
    """Return a row of the variables ``names``, as far as the plan has them."""

    def row(plan: Plan) -> Said:
        found = {name: value for name, value in plan.environment.items() if name in names}
        return tuple(Line(ENVIRONMENT, f"{name}={_quoted(name, value)}") for name, value in found.items())

    return row


def in_shells(row: Row) -> dict[str, Row]:
    """Return ``row`` for all targets that take variables of the environment."""
    return dict.fromkeys(SHELLS, row)


def before_python(plan: Plan, *names: str) -> str:
    """Return the variables ``names``, which must be there when Python starts."""
    found = {name: value for name, value in plan.environment.items() if name in names}
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in found.items())


def _quoted(name: str, value: str) -> str:
    """Quote for a shell; libraries that are preloaded already stay."""
    return f'"${{LD_PRELOAD:+$LD_PRELOAD:}}"{shlex.quote(value)}' if name == "LD_PRELOAD" else shlex.quote(value)
