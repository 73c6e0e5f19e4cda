"""The profile's format: what a tuning run found, as frozen records. A file holds exactly these fields, in this order.

A profile may come from anyone. It holds numbers, enumerated words and short plain text only: nothing in it names a
file, a variable or code. Annotations are the limits that reading checks (`autotune.decoding`); making a record
in Python checks nothing. The format gets a number when version 1.0 is released.
"""

import html
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from autotune import devices
from autotune.decoding import OMITTED, At, Count, Limit, Rate, Rules, Scalar, one_of, pattern, span
from autotune.devices import Device
from autotune.errors import UsageError, did_you_mean
from autotune.knobs.knob import Knob, progress
from autotune.knobs.level import LEVELS
from autotune.knobs.settings import BY_NAME, KNOB_NAMES, Settings
from autotune.knobs.task_facts import Fingerprint, LeftOut
from autotune.probes.facts import Gpu, Inventory
from autotune.stats.decide import LevelVerdict
from autotune.stats.proof import MOST_SPEEDUP, Proof, Round
from autotune.stats.whole_run import WholeRun

SCHEMA = "autotune.profile"
FELT_SECONDS, FELT_SHARE = 0.5, 0.05
"""A run that saves less, or a smaller share of its time, is left as it is."""
MAX_NAME = 100
MEMORY_GIB: tuple[float, ...] = (1, 1.5, *(step << k for k in range(24) for step in (2, 3)))
"""Classes of memory: 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24 and so on."""

Slug = Annotated[str, pattern(r"[a-z0-9][a-z0-9.\-]{0,199}", "a plain name (a-z, 0-9, dots, dashes)")]
Fact = Annotated[str, pattern(r"[\x21-\x7e]{1,100}", "one plain word")]
Number = Annotated[int, span(1, 2**20)]
Name = Annotated[str, Limit(lambda text: 0 < len(text) <= MAX_NAME, f"a name of up to {MAX_NAME} letters")]
TargetName = Annotated[str, pattern(r"\w[\w .,+=@()-]{0,99}", "a plain name of letters and digits, without folders")]
KnobName = Annotated[str, one_of(KNOB_NAMES, "a knob")]
Key = Annotated[str, pattern(r"[a-z][a-z0-9_]{0,31}", "a lower-case word")]
Level = Annotated[str, one_of(LEVELS)]
NO_LEVEL = "none"
"""In the place of the recommended level."""
Share = Annotated[float, span(0.5, 0.9999)]


def _knob(knob: Knob) -> Any:
    return Annotated[Any, Limit(lambda value: knob.why_not(value) is None, str(knob.kind.why_not(None)))]


def _proof(high: float | None, **values: Any) -> Proof:
    """Return a proof, of which the file has ``high: null`` if the interval has no upper end."""
    return Proof(high=math.inf if high is None else high, **values)


Knobs = Annotated[Settings, Rules({name: _knob(knob) for name, knob in BY_NAME.items()}, Settings, with_time=True)]
"""A knob that a file does not have came later: it has PyTorch's own value."""
Ratio = Annotated[
    Proof, Rules({"value": Rate, "low": Rate, "high": Rate | None, "confidence": Share, "rounds": Count}, _proof)
]
NOTHING = Fingerprint()


@dataclass(frozen=True)
class MachineType:
    """All that makes two machines interchangeable for tuning. Never hosts, users, serials or paths."""

    key: Slug
    vendor: Annotated[Fact, At("facts")]
    family: Annotated[Fact, At("facts")]
    architecture: Annotated[Fact, At("facts")]
    threads: Annotated[Number, At("facts")]
    cores: Annotated[Number, At("facts")]
    sockets: Annotated[Number, At("facts")]
    nodes: Annotated[Number, At("facts")]
    memory_gib: Annotated[Rate, At("facts")]
    """The nearest of `MEMORY_GIB`."""
    gpus: Annotated[tuple[Slug, ...], At("facts")]
    features: Annotated[tuple[Fact, ...], At("facts")]
    gpu_gib: Annotated[tuple[Annotated[int, span(0, 2**20)], ...], At("facts"), OMITTED] = ()
    """Memory of each GPU in whole GiB."""
    gpu_links: Annotated[tuple[Slug, ...], At("facts"), OMITTED] = ()
    """Kinds of links between the GPUs, sorted."""


@dataclass(frozen=True)
class LevelResult:
    """One level's answer. If ``proven`` is False, ``settings`` are those of the level below (or the baseline)."""

    settings: Knobs
    rate: Rate
    """Items per second in the proof."""
    speedup: Ratio
    """Against the baseline."""
    proven: bool
    note: str = ""
    """Why the level adds nothing of its own, in plain words."""
    verdict: Annotated[str, one_of([each.value for each in LevelVerdict]), OMITTED] = ""
    """The short answer, as one of a few words; empty in profiles that were written without one."""
    memory: Annotated[Count, OMITTED] = 0
    """Most bytes of the host's memory that a trial of ``settings`` held; left out if it was not measured."""
    gpu_memory: Annotated[Count, OMITTED] = 0
    """The same of each GPU."""
    start_seconds: Annotated[Rate, OMITTED] = 0.0
    """What the first step takes longer than with the user's own settings: workers start, a model is compiled."""

    def problem(self) -> str | None:
        """Return why this cannot have been measured; None if it may be true."""
        ratio = self.speedup
        if not ratio.low <= ratio.value <= ratio.high:
            return f"speedup: {ratio.value} is not between low {ratio.low} and high {ratio.high}"
        if self.proven and not ratio.rounds:
            return "proven: true, but nothing was compared (0 rounds)"
        if self.proven and ratio.low < 1:
            return f"proven: true, but the settings may be slower (low {ratio.low})"
        if self.proven and ratio.value > MOST_SPEEDUP:
            return f"proven: true, but a speedup of {ratio.value:g} is not believable (more than {MOST_SPEEDUP:g})"
        return None


@dataclass(frozen=True)
class Failure:
    """One setting that did not work."""

    kind: Name
    reason: str
    changed: Mapping[KnobName, Scalar]
    """The knobs by which it differs from the baseline."""


@dataclass(frozen=True)
class Advice:
    """A proven gain that only the user's own code can have."""

    knob: KnobName
    value: Scalar
    instead_of: str
    """The line that fixes the knob now."""
    speedup: Ratio
    """Against the baseline."""


@dataclass(frozen=True)
class Evidence:
    """The way to the answer."""

    trials: Count
    seconds: Rate
    partial: bool = False
    """True if tuning was interrupted before the proof."""
    failures: tuple[Failure, ...] = ()
    not_offered: tuple[LeftOut, ...] = ()
    warnings: tuple[str, ...] = ()
    ceiling: Annotated[Any, OMITTED] = None
    """Rates of matrix products, in profiles of earlier versions; nothing reads them."""
    load: Annotated[str, OMITTED] = ""
    """How much of the CPUs other processes took meanwhile: one sentence; empty if little."""
    busy: Annotated[bool, OMITTED] = False
    """True if they took more than half of the CPUs: the figures are not the machine's, and are not shared."""
    noise_scale: Annotated[Rate | None, OMITTED] = None
    """The gradient noise scale in batches of the baseline; left out if it was not measured."""
    run: Annotated[WholeRun | None, OMITTED] = None
    """The whole run of a script; left out if it was not followed."""
    advice: Annotated[tuple[Advice, ...], OMITTED] = ()
    """What to change in the code; nothing applies it."""


@dataclass(frozen=True)
class Target:
    """The target: the task's name, the unit of its rates, and its device."""

    name: TargetName
    unit: Name
    device: Annotated[str, pattern(r"[a-z]{1,16}(:[0-9]{1,3})?", "a device, such as cpu or cuda:1")]
    parameters: Count
    samples: Count | None
    script: Annotated[Annotated[str, one_of(("batches", "steps", "backward passes"))] | None, OMITTED] = None
    """What the training steps of an unmodified script are counted by; None for a task file."""
    ranked: Annotated[bool, OMITTED] = False
    """True if the script was tuned with the variables that torchrun sets, also as one process."""
    project: Annotated[str, OMITTED] = ""
    """The project of an unmodified script: its top folder's name."""
    compared: Annotated[Fingerprint, OMITTED] = NOTHING
    """What tuning has compared with plain PyTorch: nothing else is changed in training."""

    @property
    def where(self) -> Device:
        """Return the record of `device`."""
        return devices.of(self.device)


@dataclass(frozen=True)
class Written:
    """Who made a profile, and when."""

    tool: Annotated[str, pattern(r"[0-9][0-9a-z.+]{0,39}", "a version")]
    """Version of torch-autotune."""
    date: Annotated[str, pattern(r"20[0-9]{2}-[01][0-9]-[0-3][0-9]", "a day such as 2026-11-22")]
    """Day in UTC."""


@dataclass(frozen=True)
class Profile:
    """What a tuning run found: the content of a file, whose keys docs/profile-format.md explains.

    Attributes:
        machine, software, target: what it holds for.
        recommended: the level that is applied.
        baseline, baseline_rate: the user's own settings, and their items per second.
        levels: the result of each level: ``settings``, ``rate`` in items per second, ``speedup`` with its interval,
            ``proven``.
        evidence: what was tried, what failed, and how long it took in seconds.
    """

    schema: Annotated[str, one_of((SCHEMA,))] = field(default=SCHEMA, kw_only=True)
    written: Annotated[Written | None, OMITTED] = field(default=None, kw_only=True)
    machine: MachineType
    software: Mapping[Key, Scalar]
    """``{python, torch, cuda, ...}``: what the figures depend on."""
    target: Target
    recommended: Annotated[str, one_of((*LEVELS, NO_LEVEL))]
    """`NO_LEVEL` if no level up to the one that was asked for gains."""
    baseline: Annotated[Knobs, At("baseline", "settings")]
    baseline_rate: Annotated[Rate, At("baseline", "rate")]
    """Items per second."""
    levels: Mapping[Level, LevelResult]
    """Lowest first. A level that did not exist when the profile was written is not there."""
    evidence: Evidence

    @property
    def key(self) -> str:
        """Return the machine key."""
        return self.machine.key

    @property
    def default_level(self) -> str:
        """Return the recommended level; if none is, the lowest, which has the user's own settings then."""
        return next(iter(self.levels)) if self.recommended == NO_LEVEL else self.recommended

    def problem(self) -> str | None:
        """Return why this is no whole profile; None if it is one."""
        for name, level in self.levels.items():
            changed, own = level.settings.difference(self.baseline), LEVELS[name]
            beyond = [knob for knob in changed if not own.includes(BY_NAME[knob].level)]
            if beyond or (level.settings.global_batch != self.baseline.global_batch and not own.any_batch):
                return f"levels.{name}: changes {(*beyond, 'the global batch')[0]}, which this level keeps"
        known = self.recommended in (NO_LEVEL, *self.levels)
        return None if known and self.levels else f"levels: the recommended {self.recommended} is missing"

    def level(self, name: str | None = None) -> LevelResult:
        """Return the result of level ``name``; that of the `default_level` if None."""
        return self.levels[name or self.default_level]

    def checked_level(self, wanted: str | None) -> str:
        """Return ``wanted``, which the user gave with ``--level``; the `default_level` if None.
        Raise `UsageError` if there is no such level."""
        name = wanted or self.default_level
        if name not in self.levels:
            hint = did_you_mean(name, self.levels)
            raise UsageError(f"--level {name}: the profile has {', '.join(self.levels)}{hint}")
        return name

    def by_worth(self, measured: Round) -> Round:
        """Return a round of the baseline and of levels that counts each item by its worth, as speedups do."""
        own, scale = self.baseline.global_batch, self.evidence.noise_scale
        worth = {name: progress(level.settings.global_batch / own, scale) for name, level in self.levels.items()}
        return replace(measured, rates={name: rate * worth.get(name, 1.0) for name, rate in measured.rates.items()})

    def unproven(self, level: str) -> str:
        """Return why ``level`` is applied only if the user asks for it by name; empty if there is no reason."""
        own = self.levels[level]
        if own.proven or not self.evidence.partial or own.settings == self.baseline:
            return ""
        return f"tuning was interrupted before level {level} was proven; autotune tune --resume goes on"

    def saved_seconds(self, level: str) -> float | None:
        """Return what the whole run saves at ``level``, by its measured speedup; None if its length is not known."""
        run, own = self.evidence.run, self.levels[level]
        before, after = (run.seconds(), run.seconds(own.speedup.value, own.start_seconds)) if run else (None, None)
        return before - after if before is not None and after is not None else None

    def saves_time(self, level: str) -> bool:
        """Return False if people would not feel what the whole run saves, or each step if its length is not known."""
        own, run, saved = self.levels[level], self.evidence.run, self.saved_seconds(level)
        gain = (run.speedup(own.speedup.value, own.start_seconds) if run else None) or own.speedup.value
        felt = (saved is None or saved >= FELT_SECONDS) and gain * (1 - FELT_SHARE) >= 1
        return felt or own.settings == self.baseline

    def unfelt(self, level: str) -> str:
        """Return why ``level`` saves too little to be applied without being named; empty if people would feel it."""
        name_it = f"To apply its profile all the same, name level {level}"
        return "" if self.saves_time(level) else f"the run that was tuned would save too little to feel. {name_it}"

    @property
    def gain(self) -> float:
        """Return the largest proven speedup of a level; 1 if none gains."""
        return max((own.speedup.value for own in self.levels.values() if own.proven), default=1.0)

    def __repr__(self) -> str:
        """Return one line, for prompts."""
        return f"<Profile of {self.target.name} on {self.key}: {self.recommended}, up to {self.gain:.2f}x proven>"

    def _repr_html_(self) -> str:
        """Return the levels as a table, for notebooks."""
        rows = []
        for name, own in self.levels.items():
            gain = f"{own.speedup.value:.2f}x ({own.speedup.low:.2f} to {own.speedup.high:.2f})"
            changed = (f"{knob}={mine}" for knob, (mine, _before) in own.settings.difference(self.baseline).items())
            words = (name, gain if own.proven else "not proven", ", ".join(changed) or "your settings")
            rows.append("".join(f"<td>{html.escape(word)}</td>" for word in words))
        return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


# Types of machines ----------------------------------------------------------------------------------------------------


def machine_type(inventory: Inventory) -> MachineType:
    """Return the type of the machine (or container) of ``inventory``, by the hardware that may be used."""
    cpu, budget = inventory.cpu, inventory.budget
    allowed = [c for c in cpu.logical if c.id in set(budget.cpus)]
    sockets = len({c.package for c in allowed}) or 1
    nodes = len({c.node for c in allowed if c.node is not None}) or 1
    gib = memory_class(inventory.memory.limit)
    gpus = tuple(gpu_slug(gpu) for gpu in inventory.gpus)
    parts = [cpu.vendor, cpu.family]
    if sockets > 1:
        parts.append(f"{sockets}s")
    parts += [
        f"{budget.cores}c" if budget.cores == budget.threads else f"{budget.cores}c{budget.threads}t",
        f"{gib:g}g",
    ]
    for name in dict.fromkeys(gpus):
        count = gpus.count(name)
        parts.append(name if count == 1 else f"{name}x{count}")
    return MachineType(
        key=slug("-".join(part for part in parts if part)),
        vendor=cpu.vendor,
        family=cpu.family,
        architecture=cpu.architecture,
        threads=budget.threads,
        cores=budget.cores,
        sockets=sockets,
        nodes=nodes,
        memory_gib=gib,
        gpus=gpus,
        features=cpu.features,
        gpu_gib=tuple(round(gpu.memory_total / 2**30) for gpu in inventory.gpus),
        gpu_links=tuple(sorted({link for gpu in inventory.gpus for link in gpu.links})),
    )


def versions(inventory: Inventory) -> dict[str, str | None]:
    """Return the versions of the software that figures depend on, as profiles store them."""
    software = inventory.software
    drivers = [gpu.driver for gpu in inventory.gpus if gpu.driver]
    found = {"python": software.python, "torch": software.torch, "cuda": software.cuda}
    return found | ({"driver": drivers[0]} if drivers else {})


def memory_class(size: int) -> float:
    """Return the size of `MEMORY_GIB` that is nearest to ``size`` bytes by ratio.

    Kernel and firmware reserve a few per cent of the installed memory, and the share changes with updates. That must
    not change the machine type.
    """
    return min(MEMORY_GIB, key=lambda gib: abs(math.log(max(1, size) / 2**30 / gib)))


def gpu_slug(gpu: Gpu) -> str:
    """Return ``h200`` for ``NVIDIA H200``, ``rtx-4090`` for ``NVIDIA GeForce RTX 4090``. A MIG slice keeps its size."""
    name = re.sub(r"\b(nvidia|geforce|tesla|quadro)\b", "", gpu.name.lower())
    return slug(name) or "gpu"


def slug(text: str) -> str:
    """Return ``text`` in lower-case letters, digits, dots and single dashes."""
    return re.sub(r"-+", "-", re.sub(r"[^a-z0-9.]+", "-", text.lower())).strip("-.")
