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

STEP, QUARTER = "step", "quarter"
"""Candidates: the whole step, and a quarter of the batch without the loader. Others are named by their part."""
SURE = 1.05
"""A bound counts if its lower end is above this."""
MUCH_FASTER = 1.25
"""If fewer threads may be this many times as fast, the verdict is not about what the threads compute."""
MUCH = 0.2
"""A part is named beside the verdict from this share of the step on."""
CLEARLY = 1.5
"""What bounds the passes takes this many times as long as the next candidate."""
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
    OVERHEAD = "overhead"
    """What a step takes whatever its batch."""
    MEMORY = "memory"
    """Traffic of the passes between processor and memory."""


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
    OVERHEAD = "overhead-bound"
    COMPUTE = "compute-bound"
    MEMORY = "memory-bound"
    BUSY = "unknown: other processes"
    FEW_STEPS = "unknown: few steps"
    UNEXPLAINED = "unknown: several causes"


OPERATOR_BOUNDS = (Bound.OVERHEAD, Bound.COMPUTE, Bound.MEMORY)
"""What an operator takes its time for: its call, whatever it computes; computing; memory traffic."""


@dataclass(frozen=True)
class Place:
    """The place where a part spends most of its time: the user's line seen most often, and the function's share."""

    function: str
    file: str
    line: int
    share: float


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
        uses: seconds of the passes of one step, by `OPERATOR_BOUNDS`.
        operators: seconds of those operators of one step that take most of the passes.
    """

    blocks: tuple[Mapping[Part, float], ...]
    step_seconds: float
    items: float
    lost: float = 0.0
    neighbours: float = 0.0
    places: Mapping[Part, Place] = field(default_factory=dict)
    loader: Bound = Bound.MAIN_PROCESS
    uses: Mapping[Bound, float] = field(default_factory=lambda: dict.fromkeys(OPERATOR_BOUNDS, 0.0))
    operators: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """The bound of the step, and what else takes much of it.

    Attributes:
        bound: what bounds it, or why that cannot be told.
        part: that takes most of the step.
        shares: of the step's time by part; together 1.
        others: parts that surely take much of the step, too.
    """

    bound: Bound
    part: Part
    shares: Mapping[Part, float]
    others: tuple[Part, ...] = ()


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


# The verdict ----------------------------------------------------------------------------------------------------------


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
    passes, uses = share_of(found[Part.PASSES]), inspection.uses
    quarter, loader = compare(rounds, QUARTER, STEP), share_of(found[Part.LOADER])
    if quarter.rounds:
        value, low, high = (_fixed_share(ratio, loader) for ratio in (quarter.value, quarter.high, quarter.low))
        found[Part.OVERHEAD] = _gain(value, low, high, quarter.rounds)
    if uses[Bound.MEMORY] > 0:
        traffic = passes * uses[Bound.MEMORY] / sum(uses.values())
        found[Part.MEMORY] = _gain(traffic, 0.0, traffic, len(inspection.blocks))
    return found


def verdict(found: Mapping[Part, Proof], inspection: Inspection, settings: Settings, neighbours: float) -> Verdict:
    """Return what bounds the step of ``settings``, by its `bounds`, and what else takes much of it. Others kept
    ``neighbours`` processors busy."""
    shares = _shares(found)
    part = max(shares, key=lambda each: shares[each])
    beside = neighbours >= BUSY_CPUS
    doubt = Bound.BUSY if beside else Bound.FEW_STEPS
    if found[part].low <= SURE:
        return Verdict(doubt, part, shares)
    others = tuple(each for each in shares if each is not part and shares[each] >= MUCH and found[each].low > SURE)
    fewer, computes = found.get(Part.THREADS), part in (Part.PASSES, Part.UPDATE)
    if fewer is not None and fewer.low > SURE and (part is Part.PASSES or share_of(fewer) > shares[part]):
        return Verdict(Bound.THREADS, part, shares, others)
    waits = settings.processes * settings.threads > 1 and beside and inspection.lost > LASTING
    if computes and (waits or (fewer is not None and fewer.high > MUCH_FASTER)):
        return Verdict(doubt, part, shares, others)
    own = {Part.LOADER: inspection.loader, Part.UPDATE: Bound.UPDATE, Part.GRADIENT_SYNC: Bound.GRADIENT_SYNC}
    bound = (own | {Part.LOOP: Bound.LOOP, Part.PASSES: _passes_bound(found, inspection)})[part]
    return Verdict(bound, part, shares, others)


def _shares(found: Mapping[Part, Proof]) -> dict[Part, float]:
    """Return shares of the step's time by part; the passes take what the others leave."""
    own: dict[Part, float] = {part: share_of(found[part]) for part in CLOCKED if part is not Part.PASSES}
    whole = max(1.0, sum(own.values()))
    own = {part: share / whole for part, share in own.items()}
    return own | {Part.PASSES: 1 - sum(own.values())}


def _passes_bound(found: Mapping[Part, Proof], inspection: Inspection) -> Bound:
    """Return what bounds the passes by the profiler. Rounds with a quarter of the batch show how much shrinks with it:
    neither calls of operators nor the traffic of weights do."""
    seconds = dict(inspection.uses)
    fixed = found.get(Part.OVERHEAD)
    if fixed is not None:
        passes = share_of(found[Part.PASSES])
        most = 1 - share_of(found[Part.LOADER]) - passes / 2
        if 1 - 1 / fixed.low > most:
            return Bound.OVERHEAD if seconds[Bound.OVERHEAD] > seconds[Bound.MEMORY] else Bound.MEMORY
        if 1 - 1 / fixed.high < most:
            del seconds[Bound.OVERHEAD]
    first, second = sorted(seconds, key=lambda each: -seconds[each])[:2]
    return first if seconds[first] >= CLEARLY * seconds[second] else Bound.UNEXPLAINED


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


def _fixed_share(ratio: float, loader: float) -> float:
    """Return the share of a step that does not shrink with the batch, if a quarter of it has ``ratio`` times the rate.

    Without the loader's share, a quarter of the batch takes ``a + c / 4`` seconds, and the whole ``a + c``.
    """
    rest = 1 - loader
    return min(rest, max(0.0, (1 / ratio - rest) / 3)) if ratio > 0 else rest
