"""Describes a knob: its values, what is expected of it before anything runs, and how it is put in force."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from autotune.knobs.change import Change, Training
from autotune.knobs.choices import Choices
from autotune.knobs.task import TaskFacts
from autotune.probes.facts import Inventory

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer
    from torch.utils.data import DataLoader


LEVELS = ("safe", "amp", "max")
"""Each level includes the ones before it."""
SERVER_SECONDS = 3.0
"""Until a fresh Python has imported torch and the task."""
MORE, LESS = "more", "less"
"""The two directions in which a `Count` moves, in `Knob.why`."""
EXACT, ROUNDING, TRACKING = "exact", "rounding", "tracking"
"""How close training stays with another value: bit for bit; but for sums in another order; losses only track."""


def includes(level: str, other: str) -> bool:
    """Return True if ``level`` allows everything that ``other`` allows."""
    return LEVELS.index(level) >= LEVELS.index(other)


class Chosen(Protocol):
    """A value for every knob, by name: `autotune.knobs.settings.Settings`, which is made from the table."""

    def __getattr__(self, name: str) -> Any: ...


@dataclass(frozen=True)
class Context:
    """Everything a knob's choices may depend on."""

    inventory: Inventory
    task: TaskFacts
    baseline: Any
    """`autotune.knobs.settings.Settings`: what the user runs today."""
    train_seconds: float | None = None
    """How long the user means to train; None if unknown."""
    gflops: Mapping[str, float] = field(default_factory=dict)
    """Measured rate of matrix products by precision, in 1e9 operations per second; empty if not measured."""
    budget_seconds: float = math.inf
    """What the run may take."""
    compile_seconds: float | None = None
    """What the first compiled step took; infinite if it did not finish, None if none was tried."""
    neighbours: float = 0.0
    """Processors that other processes kept busy until the search began, on average."""

    @property
    def cuda(self) -> bool:
        """Return True if trials run on a CUDA device."""
        return self.task.device == "cuda"


@dataclass(frozen=True)
class Plan:
    """Settings as `autotune.export` writes them for other launchers and trainers.

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

    def start_with(self, *names: str) -> str:
        """Return words for the variables ``names``, which must be there when Python starts."""
        found = (f"{name}={shlex.quote(self.environment[name])}" for name in names if name in self.environment)
        return f"start with {' '.join(found)}"


@dataclass(frozen=True)
class Word:
    """One of a few words; the first changes nothing."""

    values: tuple[Any, ...]

    def why_not(self, value: object) -> str | None:
        """Return what is wanted instead of ``value``; None if it is a value of this kind."""
        return None if value in self.values else f"one of {', '.join(self.values)}"

    def coordinate(self, value: Any) -> float:
        """Return the search's coordinate of ``value``."""
        return float(self.values.index(value))


@dataclass(frozen=True)
class Flag(Word):
    """Off or on."""

    values: tuple[Any, ...] = (False, True)

    def why_not(self, value: object) -> str | None:
        """Return what is wanted instead of ``value``; None if it is a value of this kind."""
        return None if isinstance(value, bool) else "True or False"


@dataclass(frozen=True)
class Count:
    """A whole number. The search uses its logarithm: doubling is the natural step of threads, workers and batches."""

    least: int
    most: int

    def why_not(self, value: object) -> str | None:
        """Return what is wanted instead of ``value``; None if it is a value of this kind."""
        whole = isinstance(value, int) and not isinstance(value, bool) and self.least <= value <= self.most
        return None if whole else f"a whole number from {self.least} to {self.most}"

    def coordinate(self, value: Any) -> float:
        """Return the search's coordinate of ``value``."""
        return math.log2(value + 1 - self.least)


@dataclass(frozen=True)
class Effect:
    """The search's expectation of a knob, before any trial.

    Attributes:
        spread: prior standard deviation of the effect on the log rate (0.1 is about ten per cent).
        length: distance in coordinates over which the effect is alike; None for words, alike only if equal.
    """

    spread: float
    length: float | None = None


def always(_settings: Chosen) -> bool:
    """Return True: the knob applies whatever the others are."""
    return True


def no_gain(_settings: Chosen, _context: Context) -> float:
    """Return 0: nothing is expected, or `autotune.search.prior` derives the gain from the step's parts."""
    return 0.0


@dataclass(frozen=True, kw_only=True)
class Knob:
    """One knob.

    Attributes:
        name: of the field in `Settings`.
        what: one line for people.
        offered: where its choices come from, for people.
        level: the first level at which the knob may move.
        applied: when it takes effect: ``launch``, ``start``, ``loader``, ``model`` or ``optimizer``.
        kind: the values there are anywhere.
        neutral: the value that changes nothing, and the one of settings to which the knob does not apply.
        choices: values on this machine for this task.
        why: why a new value helps, in at most 40 characters, by value or by `MORE` and `LESS`.
        plain: how plain PyTorch says the value: a line of code, or what to do.
        devices: kinds of device that it concerns; elsewhere it is neutral.
        applies: whether the knob does anything beside the other settings.
        usual: PyTorch's own value if the knob applies and ``neutral`` is None.
        unsaid: PyTorch's own value on a machine, if that is not ``neutral``.
        fitted: a value on another machine of such a device: the same, or what can be done instead.
        explained: why a move helps beside the other settings; None if `why` says it.
        follows: True if a change only follows from another knob's, or is explained by a line of its own.
        effect: what the search expects; None for knobs that it sees together with others.
        gain: expected gain in log rate over the neutral value.
        changes_memory: of which memories a batch takes more or less: ``host``, ``device``, ``shm``.
        keeps: how close training stays: `EXACT`, `ROUNDING` or `TRACKING`.
        loss_tolerance: largest relative distance of the first losses from the fp32 baseline's, if rounding alone
            makes more than the usual one, by value.
        start_seconds: of each trial, by value.
        first_seconds: of the first trial with that value, on top.
        inherited: True if a process must start with the value: a fork cannot change it.
        words: how people say a value: ``batch {}``, ``{} worker{s}``, ``{} batch{es}``; else its name and value.
        start: puts a value that `changes` something in force in this process; None if it is in force already.
        on_model, on_optimizer: put such a value in force in one model or optimizer; None if it has it already.
        on_loader: returns the attributes of a data loader that the value changes.
    """

    name: str
    what: str
    offered: str
    kind: Flag | Word | Count
    neutral: Any
    choices: Callable[[Context], Choices] = field(repr=False)
    why: Mapping[Any, str] = field(repr=False)
    plain: Callable[[Plan], str] = field(repr=False)
    level: str = "safe"
    applied: str = "start"
    devices: tuple[str, ...] = ("cpu", "cuda")
    applies: Callable[[Chosen], bool] = field(default=always, repr=False)
    usual: Any = None
    unsaid: Callable[[Inventory], Any] | None = field(default=None, repr=False)
    fitted: Callable[[Any, Inventory], Any] = field(default=lambda value, _inventory: value, repr=False)
    explained: Callable[[Any, Any, Chosen], str | None] | None = field(default=None, repr=False)
    follows: bool = False
    effect: Effect | None = None
    gain: Callable[[Chosen, Context], float] = field(default=no_gain, repr=False)
    changes_memory: tuple[str, ...] = ()
    keeps: str = EXACT
    loss_tolerance: Mapping[Any, float] = field(default_factory=dict, repr=False)
    start_seconds: Mapping[Any, float] = field(default_factory=dict, repr=False)
    first_seconds: Mapping[Any, float] = field(default_factory=dict, repr=False)
    inherited: bool = False
    words: str = ""
    start: Callable[[Any, Training], Change | None] | None = field(default=None, repr=False)
    on_model: Callable[[Any, nn.Module, Training], Change | None] | None = field(default=None, repr=False)
    on_optimizer: Callable[[Any, Optimizer, Training], Change | None] | None = field(default=None, repr=False)
    on_loader: Callable[[Chosen, DataLoader[Any], Training], dict[str, Any]] | None = field(default=None, repr=False)

    @property
    def ordinal(self) -> bool:
        """Return True if values are ordered and a neighbour is one step away."""
        return isinstance(self.kind, Count)

    @property
    def conditional(self) -> bool:
        """Return True if the knob does nothing beside some other settings."""
        return self.applies is not always

    def why_not(self, value: object) -> str | None:
        """Return what is wanted instead of ``value``, in words; None if it is one of the knob's values."""
        if value is None and self.neutral is None:
            return None
        return self.kind.why_not(value)

    def changes(self, value: object) -> bool:
        """Return True if ``value`` may change something: any number, or what is not neutral."""
        return self.ordinal or value != self.neutral

    def on_machine(self, value: Any, inventory: Inventory) -> Any:
        """Return ``value``, or what this machine's devices can do instead."""
        if ("cuda" if inventory.gpus else "cpu") not in self.devices:
            return self.neutral
        return self.fitted(value, inventory)

    def coordinate(self, settings: Chosen) -> float:
        """Return the search's coordinate of the knob's value."""
        value = getattr(settings, self.name)
        value = self.usual if value is None else value
        return self.kind.coordinate(value)

    def reason(self, before: Any, after: Any, settings: Chosen) -> str:
        """Return why moving from ``before`` to the ``after`` of ``settings`` helps."""
        if self.explained is not None and (explained := self.explained(before, after, settings)):
            return explained
        if after in self.why:
            return self.why[after]
        return self.why[MORE if before is None or after > before else LESS]
