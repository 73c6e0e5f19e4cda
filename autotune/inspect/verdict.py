"""Finds what bounds a training step, by one trial's measurements. Pure. Texts are in `autotune.report.diagnosis`.

Two measurements give each part's share of the step. The clock of one trial shows in which part the training process is.
The interleaved rounds without a part show what its removal brings; they count if they contradict the clock, or are
narrower.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from autotune.knobs.settings import Settings
from autotune.knobs.task_facts import TaskFacts
from autotune.stats.measurement import LASTING
from autotune.stats.proof import CONFIDENCE, PRIOR_SPREAD, Proof, Round, compare, student_quantile

STEP = "step"
"""The candidate of the whole step. Others are named by their part."""
SURE = 1.05
"""A bound counts if its lower end is above this."""
MUCH_FASTER = 1.25
"""If fewer threads may be this many times as fast, the verdict is not about what the threads compute."""
BUSY_CPUS = 0.5
"""A step runs beside neighbours if these keep so many processors busy."""


class Part(str, Enum):
    """A part of the step, or another cause of its length: what a bound is about."""

    LOADER = "loader"
    UPDATE = "optimizer"
    GRADIENT_SYNC = "gradient_sync"
    LOOP = "loop"
    """The user's own code between the other parts."""
    PASSES = "forward_backward"
    """From the model's call to the end of the backward pass."""
    THREADS = "threads"


CLOCKED = (Part.LOADER, Part.UPDATE, Part.GRADIENT_SYNC, Part.LOOP, Part.PASSES)
"""Parts that make up a whole step."""


class Bound(str, Enum):
    """Bounds of a step."""

    MAIN_PROCESS = "input-bound: main process"
    WORKERS = "input-bound: workers"
    DISK = "input-bound: disk"
    SLOW_SOURCE = "input-bound: waiting"
    UPDATE = "optimizer-bound"
    GRADIENT_SYNC = "communication-bound"
    LOOP = "loop-bound"
    THREADS = "oversubscribed"
    PASSES = "model-bound"
    BUSY = "unknown: other processes"
    FEW_STEPS = "unknown: few steps"


@dataclass(frozen=True)
class Place:
    """The place where a part spends most of its time: the user's line seen most often, and the function's share."""

    function: str
    file: str
    line: int
    share: float


@dataclass(frozen=True)
class Operator:
    """An operator by PyTorch's profiler: its share of the time of all operators, 0..1, and its calls in a step."""

    name: str
    share: float
    calls: float


@dataclass(frozen=True)
class Inspection:
    """One trial's measurements of a training step.

    Attributes:
        blocks: seconds of each part in each block of steps.
        step_seconds: wall time of a step.
        items: of a step, of all processes.
        lost: share of the processors' time that others took from the training, 0..1.
        neighbours: processors that others kept busy.
        places: where each part spends most of its time, as far as that is the user's code.
        loader: why the loader takes as long as it does.
        load_threads: that read samples in each worker, on average.
        most_of_workers: largest share of one worker in what all workers computed; 0 if that is not known.
        operators: that take most of a step, the first most of all.
    """

    blocks: tuple[Mapping[Part, float], ...]
    step_seconds: float
    items: float
    lost: float = 0.0
    neighbours: float = 0.0
    places: Mapping[Part, Place] = field(default_factory=dict)
    loader: Bound = Bound.MAIN_PROCESS
    load_threads: float = 1.0
    most_of_workers: float = 0.0
    operators: tuple[Operator, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The bound of the step.

    Attributes:
        bound: what bounds it, or why that cannot be told.
        part: that takes most of the step.
        shares: of the step's time by part; together 1.
    """

    bound: Bound
    part: Part
    shares: Mapping[Part, float]


@dataclass(frozen=True)
class Diagnosis:
    """Why a training step takes as long as it does.

    Attributes:
        settings: the user's.
        unit: what rates count.
        rate: items per second, of all processes.
        step_seconds: of a step at this rate.
        verdict: what bounds the step.
        bounds: how many times as fast the step could be at most without a part, by part.
        inspection: what one trial measured of the parts.
        neighbours: processors that others kept busy.
        threads: of each process, that fit this machine beside other processes; None if the present ones fit.
        notes: what the user should know.
    """

    settings: Settings
    unit: str
    rate: float
    step_seconds: float
    verdict: Verdict
    bounds: Mapping[Part, Proof]
    inspection: Inspection
    neighbours: float
    threads: int | None = None
    notes: tuple[str, ...] = ()


def conclude(settings: Settings, facts: TaskFacts, inspection: Inspection, rounds: Sequence[Round]) -> Diagnosis:
    """Return the diagnosis by what was measured. Step time and rate are of the same blocks."""
    items = settings.global_batch if facts.unit == "samples" else inspection.items
    rates = [turn.rates[STEP] for turn in rounds if STEP in turn.rates]
    rate = statistics.median(rates) if rates else items / inspection.step_seconds
    neighbours = max(inspection.neighbours, statistics.mean([turn.neighbours for turn in rounds] or [0.0]))
    found = bounds(inspection, rounds)
    judged = verdict(found, inspection, settings, neighbours)
    return Diagnosis(settings, facts.unit, rate, items / rate, judged, found, inspection, neighbours)


def bounds(inspection: Inspection, rounds: Sequence[Round] = ()) -> dict[Part, Proof]:
    """Return how many times as fast the step could be at most without a part, or without another cause."""
    found = {part: _clocked([block[part] / sum(block.values()) for block in inspection.blocks]) for part in CLOCKED}
    for part in Part:
        removed, clock = compare(rounds, part.value, STEP), found.get(part)
        contradicts = clock is not None and not removed.low <= clock.value <= removed.high
        if removed.rounds and (clock is None or contradicts or removed.half_width < clock.half_width):
            found[part] = removed
    return found


def verdict(found: Mapping[Part, Proof], inspection: Inspection, settings: Settings, neighbours: float) -> Verdict:
    """Return what bounds the step of ``settings``, by its `bounds`. Others kept ``neighbours`` processors busy."""
    shares = _shares(found)
    part = max(shares, key=lambda each: shares[each])
    beside = neighbours >= BUSY_CPUS
    doubt = Bound.BUSY if beside else Bound.FEW_STEPS
    if found[part].low <= SURE:
        return Verdict(doubt, part, shares)
    fewer, computes = found.get(Part.THREADS), part in (Part.PASSES, Part.UPDATE)
    if fewer is not None and fewer.low > SURE and (part is Part.PASSES or share_of(fewer) > shares[part]):
        return Verdict(Bound.THREADS, part, shares)
    waits = settings.processes * settings.threads > 1 and beside and inspection.lost > LASTING
    if computes and (waits or (fewer is not None and fewer.high > MUCH_FASTER)):
        return Verdict(doubt, part, shares)
    return Verdict(inspection.loader if part is Part.LOADER else Bound[part.name], part, shares)


def _shares(found: Mapping[Part, Proof]) -> dict[Part, float]:
    """Return shares of the step's time by part; the passes take what the others leave."""
    own: dict[Part, float] = {part: share_of(found[part]) for part in CLOCKED if part is not Part.PASSES}
    whole = max(1.0, sum(own.values()))
    own = {part: share / whole for part, share in own.items()}
    return own | {Part.PASSES: 1 - sum(own.values())}


def _clocked(shares: Sequence[float]) -> Proof:
    """Return the bound by a part's share of several blocks. The usual spread between processes is added."""
    share, count = statistics.fmean(shares), len(shares)
    if count < 2:
        return _gain(share, 0.0, 1.0, count)
    error = math.hypot(statistics.stdev(shares) / math.sqrt(count), PRIOR_SPREAD * share * (1 - share))
    half = student_quantile(0.5 + CONFIDENCE / 2, count - 1) * error
    return _gain(share, max(0.0, share - half), min(1.0, share + half), count)


def _gain(share: float, low: float, high: float, rounds: int) -> Proof:
    """Return how many times as fast a step is without a share of it."""
    value, least, most = (1 / (1 - each) if each < 1 else math.inf for each in (share, low, high))
    return Proof(value, least, most, CONFIDENCE, rounds)


def share_of(gain: Proof) -> float:
    """Return the share of the step that a part takes, 0..1, by what its removal brings."""
    return max(0.0, 1 - 1 / gain.value)
