"""The half of a knob that acts: `Applier`, of which `autotune.runtime.appliers` holds one class for each knob."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from autotune.core.binding import Affinity
from autotune.core.knobs.knob import Knob
from autotune.core.knobs.table import KNOBS
from autotune.core.settings import Settings
from autotune.runtime.calls import Call
from autotune.runtime.notes import Notes
from autotune.runtime.processes import World
from autotune.runtime.progress import Progress

LEFT_TO_THE_USER = ("launch", "start", "loader")
"""Without settings, knobs that are applied then stay as they are."""


@dataclass(frozen=True)
class Training:
    """What all parts of one session share.

    Attributes:
        settings: to put in force; None for baseline behaviour.
        level: that they come from; None in trials.
        device: of models and batches.
        world: the processes that train together.
        affinity: the CPUs that this process was started on; None where it is not bound.
        notes: what cannot be applied is told there.
        progress: what is being trained on.
        moves: whether models and batches are put on the device; an unmodified script does that itself. Each of its
            processes counts as one that trains alone.
        appliers: of all knobs, by name.
    """

    settings: Settings | None
    level: str | None
    device: torch.device
    world: World = field(default_factory=World)
    affinity: Affinity | None = None
    notes: Notes = field(default_factory=Notes)
    progress: Progress = field(default_factory=Progress)
    moves: bool = True
    appliers: dict[str, Applier] = field(default_factory=dict)


class Applier:
    """Puts one knob's value in force, as far as that changes nothing else. The base does nothing.

    What cannot be applied is never raised: a training goes on without it, and ``why_not`` tells.

    Attributes:
        depth: where a layer around a model's call belongs: the smallest is innermost.
    """

    depth = 0

    def __init__(self, value: Any, training: Training) -> None:
        self.value, self.training = value, training

    def start(self) -> str | None:
        """Apply what belongs to the process. Returns why that was not possible, or None."""

    def convert(self, model: nn.Module) -> str | None:
        """Change ``model`` in place, before any layer goes around it. Returns why that was not possible, or None."""

    def around(self, model: nn.Module, call: Call) -> Call:
        """What calling ``model`` is to run in place of ``call``."""
        return call

    def optimizer(self, optimizer: Optimizer) -> str | None:
        """Change how ``optimizer`` steps. Returns why that was not possible, or None."""

    def loader(self, own: DataLoader[Any], arguments: dict[str, Any]) -> None:
        """Change the ``arguments`` of the loader that takes the place of the user's ``own``."""

    def workers(self, arguments: dict[str, Any]) -> None:
        """Change how loader workers run, whoever has chosen their number."""

    def why_not(self) -> str | None:
        """Read back: why the value is not in force now, or None."""

    def undo(self) -> None:
        """Put back what `start` and `optimizer` changed."""


def create_appliers(training: Training) -> dict[str, Applier]:
    """An applier for each knob that has one; for models and optimizers alone where there are no settings."""
    settings = training.settings
    for knob in KNOBS:
        if knob.applier is not None and (settings is not None or knob.applied not in LEFT_TO_THE_USER):
            value = knob.neutral if settings is None else getattr(settings, knob.name)
            training.appliers[knob.name] = class_of(knob)(value, training)
    return training.appliers


def class_of(knob: Knob) -> Callable[[Any, Training], Applier]:
    """What makes the applier of ``knob``."""
    module, _, name = str(knob.applier).partition(":")
    found: Callable[[Any, Training], Applier] = getattr(
        importlib.import_module(f"autotune.runtime.appliers.{module}"), name
    )
    return found
