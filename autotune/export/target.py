"""What an export target is: a row for each knob that it can express, and how its lines are laid out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from autotune.knobs.settings import Settings


@dataclass(frozen=True)
class Plan:
    """What is exported.

    Attributes:
        settings: fitted to this machine.
        device: ``cpu`` or ``cuda``.
        gpus: how many are visible here.
        environment: variables that each process starts with.
        missing: why a knob could not be put into the environment, by knob.
        command: torchrun's command line for ``train.py``, without variables; plain Python for one process.
        exchange: the backend that torchrun starts; another than the settings' where those need MPI or a module.
    """

    settings: Settings
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
    """Why a target cannot express a knob; where empty, the plain PyTorch code is shown."""

    reason: str = ""


Row = Callable[[Plan], "tuple[Line | Missing, ...]"]
"""What a target makes of one knob; empty where there is nothing to do."""


@dataclass(frozen=True)
class Target:
    """One launcher or trainer.

    Attributes:
        name: as ``--to`` takes it.
        what: what it prints, for people.
        rows: by knob. A knob without a row is shown as plain PyTorch code, in a comment.
        layout: the text of all lines; the places are the keys.
    """

    name: str
    what: str
    rows: Mapping[str, Row] = field(repr=False)
    layout: Callable[[Plan, Mapping[str, list[str]]], list[str]] = field(repr=False)


def line(place: str, text: str) -> tuple[Line, ...]:
    """One line."""
    return (Line(place, text),)
