"""Describes a knob: its values, what is expected of it before anything runs, and how it is put in force."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from autotune import devices
from autotune.devices import CPU, Device
from autotune.knobs.change import Change, Training
from autotune.knobs.level import SAFE, Level
from autotune.knobs.task_facts import MemoryUse, TaskFacts
from autotune.probes.facts import Inventory

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer
    from torch.utils.data import DataLoader


SERVER_SECONDS = 3.0
"""Until a fresh Python has imported torch and the task."""
MORE, LESS = "more", "less"
"""The two directions in which a `Count` moves, in `Knob.why`."""
EXACT, ROUNDING, TRACKING = "exact", "rounding", "tracking"
"""How close training stays with another value: equal bits; equal up to the order of sums; similar losses."""

Chosen: TypeAlias = Any
"""A value for every knob, by name: `autotune.knobs.settings.Settings`, which is made from the table."""
Choices = dict[Any, str | None]
"""Values of a knob in the order in which they are tried, each with the reason if it is not offered."""


def unless(reason: str | None, neutral: Any, *others: Any) -> Choices:
    """Offer ``neutral`` and ``others``; ``neutral`` alone if there is a ``reason`` against the others."""
    return {neutral: None, **dict.fromkeys(others, reason)}


def offered(choices: Choices) -> tuple[Any, ...]:
    """Return the values that have no reason against them."""
    return tuple(value for value, reason in choices.items() if reason is None)


@dataclass(frozen=True)
class Context:
    """Everything a knob's choices may depend on."""

    inventory: Inventory
    task: TaskFacts
    baseline: Chosen
    """What the user runs today."""
    train_seconds: float | None = None
    """How long the user means to train; None if unknown."""
    budget_seconds: float = math.inf
    """What the run may take."""
    compile_seconds: float | None = None
    """What the first compiled step took; 0 if it failed, infinite if it did not finish, None if none was tried yet."""
    compile_failure: str | None = None
    """Why the compiler does not work here; None if it is not known to fail."""
    start_seconds: float = 0.0
    """Of a process for settings that cannot be changed in a running training."""
    neighbours: float = 0.0
    """Processors that other processes kept busy until the search began, on average."""
    noise_scale: float | None = None
    """The gradient noise scale in batches of the baseline; None if it was not measured."""
    memory: MemoryUse = field(default_factory=MemoryUse)
    """What a process of the baseline held."""
    load_threads: float = 1.0
    """Threads that read samples in it, on average."""
    max_memory: int | None = None
    max_gpu_memory: int | None = None
    """Bytes of the host, and of each GPU, that the user allows; None for all there are."""

    def worth(self, settings: Chosen) -> float:
        """Return what an item in a batch of ``settings`` is worth against one in the baseline's, as `progress`."""
        return progress(settings.global_batch / self.baseline.global_batch, self.noise_scale)

    @property
    def device(self) -> Device:
        """Return the device that trials run on."""
        return devices.of(self.task.device)


def progress(factor: float, noise_scale: float | None) -> float:
    """Return how far a sample brings the loss in a batch ``factor`` times as large, against one in the batch itself.

    A loss needs ``1 + noise_scale / batch`` steps, up to a constant (McCandlish et al. 2018, equation 2.7): many more
    samples in batches beyond the noise scale. 1 if that is not known.
    """
    return 1.0 if noise_scale is None else (1 + noise_scale) / (factor + noise_scale)


@dataclass(frozen=True)
class Plan:
    """Settings as `autotune.export` writes them for other launchers and trainers.

    Attributes:
        settings: fitted to this machine.
        device: that is trained on.
        gpus: how many are visible here.
        environment: variables that each process starts with, those of the libraries included.
        missing: why a knob could not be put into the environment, by knob.
        command: torchrun's command line for ``train.py``, without variables; plain Python for one process.
        torchrun_backend: the backend that torchrun starts; another than the settings' if those need MPI or a module.
    """

    settings: Chosen
    device: Device = CPU
    gpus: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    command: str = "python train.py"
    torchrun_backend: str | None = None

    def start_with(self, *names: str) -> str:
        """Return advice to set the variables ``names`` before Python starts."""
        found = (f"{name}={shlex.quote(self.environment[name])}" for name in names if name in self.environment)
        return f"start with {' '.join(found)}"


@dataclass(frozen=True)
class Start:
    """The start of a process.

    Attributes:
        inventory: the machine.
        own: the user's variables.
        plain: nothing of this package will run in the process, so variables do all that they can.
    """

    inventory: Inventory
    own: Mapping[str, str] = field(default_factory=dict)
    plain: bool = False


@dataclass(frozen=True)
class Variables:
    """What a knob's value wants of the environment that a process starts with.

    Attributes:
        set: variables to add.
        kept: the user's own that stay, with what they would be.
        why_not: why variables cannot put the value in force; None if they can.
    """

    set: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, str] = field(default_factory=dict)
    why_not: str | None = None

    @classmethod
    def unless_own(cls, wanted: Mapping[str, str], start: Start) -> Variables:
        """Return the ``wanted`` variables that the user has not set; those with another value are kept."""
        return cls(
            {name: value for name, value in wanted.items() if name not in start.own},
            {name: value for name, value in wanted.items() if start.own.get(name, value) != value},
        )


@dataclass(frozen=True)
class Word:
    """One of a few words; the first changes nothing."""

    values: tuple[Any, ...]

    def why_not(self, value: object) -> str | None:
        """Return what is wanted instead of ``value``; None if it is a value of this kind."""
        fits = value in self.values and isinstance(value, type(self.values[0]))  # 1 equals True, and is none
        return None if fits else f"one of {', '.join(map(str, self.values))}"

    def coordinate(self, value: Any) -> float:
        """Return the search's coordinate of ``value``."""
        return float(self.values.index(value))


FLAG = Word((False, True))
"""Off or on."""


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


@dataclass(frozen=True, kw_only=True, repr=False)
class Knob:
    """One knob.

    Attributes:
        name: of the field in `Settings`.
        level: the first level at which the knob may move.
        applied: when it takes effect: ``launch``, ``start``, ``loader``, ``model`` or ``optimizer``.
        kind: the values there are anywhere.
        neutral: the value that changes nothing, and the one of settings to which the knob does not apply.
        choices: values on this machine for this task; see `reasons`.
        why: why a new value helps, in at most 40 characters, by value or by `MORE` and `LESS`.
        plain: how plain PyTorch expresses the value: a line of code, or what to do.
        devices: kinds of device that it concerns, all if empty; elsewhere it is neutral.
        applies: whether the knob does anything beside the other settings.
        usual: PyTorch's own value if the knob applies and ``neutral`` is None.
        pytorch_default: PyTorch's own value on a machine, if that is not ``neutral``.
        adapted: a value on another machine of such a device: the same, or what can be done instead.
        dependent: True if a change only follows from another knob's, or is explained by a line of its own.
        spread: prior standard deviation of the effect on the log rate (0.1 is about ten per cent); None for knobs that
            the search sees together with others.
        length: distance in coordinates over which the effect is alike; None for words, alike only if equal.
        gain: expected gain in log rate over the neutral value, beside what `autotune.search.prior` derives from the
            step's parts.
        changes_memory: True if a batch takes more or less memory.
        keeps: how close training stays: `EXACT`, `ROUNDING` or `TRACKING`.
        loss_tolerance: largest relative distance of the first losses from the fp32 baseline's, if rounding alone
            makes more than the usual one, by value.
        start_seconds: of each trial, by value.
        first_seconds: of the first trial with that value, on top.
        variables: what the value wants of the environment of a process that starts with it; None for nothing.
        inherited: True if a process must start with the value: a fork cannot change it.
        live: True if the value can be changed between two steps of a running training, and put back.
        words: how messages write a value: ``batch {}``, ``{} worker{s}``, ``{} batch{es}``; else its name and value.
        start: puts a value that `changes` something in force in this process; None if it is in force already.
        on_model, on_optimizer: put such a value in force in one model or optimizer; None if it has it already.
        on_loader: returns the attributes of a data loader that the value changes; its ``worker_init_fn`` is called
            before the user's own.
    """

    name: str
    kind: Word | Count
    neutral: Any
    choices: Callable[[Context], Choices]
    why: Mapping[Any, str]
    plain: Callable[[Plan], str]
    level: Level = SAFE
    applied: str = "start"
    devices: tuple[Device, ...] = ()
    applies: Callable[[Chosen], bool] = lambda _settings: True
    usual: Any = None
    pytorch_default: Callable[[Inventory], Any] | None = None
    adapted: Callable[[Any, Inventory], Any] = lambda value, _inventory: value
    dependent: bool = False
    spread: float | None = None
    length: float | None = None
    gain: Callable[[Chosen, Context], float] = lambda _settings, _context: 0.0
    changes_memory: bool = False
    keeps: str = EXACT
    loss_tolerance: Mapping[Any, float] = field(default_factory=dict)
    start_seconds: Mapping[Any, float] = field(default_factory=dict)
    first_seconds: Mapping[Any, float] = field(default_factory=dict)
    variables: Callable[[Chosen, Start], Variables] | None = None
    inherited: bool = False
    live: bool = True
    words: str = ""
    start: Callable[[Any, Training], Change | None] | None = None
    on_model: Callable[[Any, nn.Module, Training], Change | None] | None = None
    on_optimizer: Callable[[Any, Optimizer, Training], Change | None] | None = None
    on_loader: Callable[[Chosen, DataLoader[Any], Training], dict[str, Any]] | None = None

    @property
    def ordinal(self) -> bool:
        """Return True if values are ordered and a neighbour is one step away."""
        return isinstance(self.kind, Count)

    def why_not(self, value: object) -> str | None:
        """Return what is wanted instead of ``value``, in words; None if it is one of the knob's values."""
        if value is None and self.neutral is None:
            return None
        return self.kind.why_not(value)

    def idle(self, device: Device) -> str | None:
        """Return why the knob does nothing on ``device``, or None."""
        where = "without" if device.on_host else "beside"
        concerned = not self.devices or device.type in (each.type for each in self.devices)
        return None if concerned else f"it does nothing {where} a GPU"

    def reasons(self, context: Context) -> Choices:
        """Return `choices`, and the reasons of the device and of the task against each value."""
        task, own = context.task, getattr(context.baseline, self.name)
        idle = self.idle(context.device)
        return {
            value: (idle if value != self.neutral else None) or task.why_left_out(self.name, value, own) or reason
            for value, reason in self.choices(context).items()
        }

    def changes(self, value: object) -> bool:
        """Return True if ``value`` may change something: any number, or what is not neutral."""
        return self.ordinal or value != self.neutral

    def on_machine(self, value: Any, inventory: Inventory) -> Any:
        """Return ``value``, or what this machine's devices can do instead."""
        if self.idle(inventory.device):
            return self.neutral
        return self.adapted(value, inventory)

    def coordinate(self, settings: Chosen) -> float:
        """Return the search's coordinate of the knob's value."""
        value = getattr(settings, self.name)
        value = self.usual if value is None else value
        return self.kind.coordinate(value)

    def reason(self, before: Any, after: Any) -> str:
        """Return why moving from ``before`` to ``after`` helps."""
        if after in self.why:
            return self.why[after]
        return self.why[MORE if before is None or after > before else LESS]
