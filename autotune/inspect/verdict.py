"""What a training step is bound by: measured parts in, a verdict out. Pure; `autotune.report.diagnosis` has the words.

Two measurements give each part's share of the step. The clock of one trial is narrow, and holds for time in which the
training process waits. The interleaved rounds without a part show what its removal really brings. The rounds count
where they contradict the clock, or are narrower.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from autotune.core.log_ratio import PRIOR_SPREAD
from autotune.core.measurement import LASTING
from autotune.core.proof import CONFIDENCE, Proof, Round, compare
from autotune.core.settings import Settings
from autotune.core.student import student_quantile
from autotune.core.task import TaskFacts
from autotune.inspect.inspection import CLOCKED, Inspection, Loading, Part, Sizes
from autotune.probes.facts import Inventory

STEP, QUARTER = "step", "quarter"
"""Contenders: the whole step, and a quarter of the batch without the loader. Others are named by their part."""
SURE = 1.05
"""A bound counts if its lower end is above this."""
MUCH = 0.2
"""A part is named beside the verdict from this share of the step on."""
BUSY = 0.6
"""A process that runs for this share of the time computes; others wait, for something else than a CPU."""
FROM_STORAGE = 2**12
"""A loader that waits is said to wait for storage from so many bytes of a batch on."""
CLEARLY = 1.5
"""What bounds the passes takes this many times as long as the next candidate."""
HEADROOM = 0.1
"""Share of the memory that stays free."""
BUSY_CPUS = 0.5
"""A step runs beside neighbours if these keep so many processors busy."""


class Bound(str, Enum):
    """What bounds a step."""

    MAIN_PROCESS = "input-bound: augmentation in the main process"
    WORKERS = "input-bound: workers"
    DISK = "input-bound: disk"
    SLOW_SOURCE = "input-bound: slow source"
    UPDATE = "update-bound"
    EXCHANGE = "exchange-bound"
    LOOP = "loop-bound"
    THREADS = "oversubscribed by threads"
    OVERHEAD = "overhead-bound"
    COMPUTE = "compute-bound"
    BANDWIDTH = "memory-bandwidth-bound"
    UNKNOWN = "cannot tell"


class Doubt(str, Enum):
    """Why a verdict cannot be given."""

    NEIGHBOURS = "neighbours"
    FEW_ROUNDS = "few rounds"
    CLOSE = "close"
    """Several causes take about as much."""


@dataclass(frozen=True)
class Verdict:
    """What bounds the step, and what else takes much of it.

    Attributes:
        bound: what bounds it.
        part: that takes most of the step.
        shares: of the step's time by part; together at most 1.
        others: parts that surely take much of the step, too.
        doubt: why the verdict is `Bound.UNKNOWN`; None for all others.
    """

    bound: Bound
    part: Part
    shares: Mapping[Part, float]
    others: tuple[Part, ...] = ()
    doubt: Doubt | None = None


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
        threads: of each process, that fit this machine beside what runs there; None if today's do.
        largest_batch: global batch that fits with 10 % headroom, predicted; None if unknown.
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
    largest_batch: int | None = None
    notes: tuple[str, ...] = ()


def conclude(settings: Settings, facts: TaskFacts, inspection: Inspection, rounds: Sequence[Round]) -> Diagnosis:
    """The diagnosis by what was measured. Step time and rate are of the same blocks."""
    items = settings.global_batch if facts.unit == "samples" else inspection.items
    rates = [turn.rates[STEP] for turn in rounds if STEP in turn.rates]
    rate = statistics.median(rates) if rates else items / inspection.step_seconds
    neighbours = max(inspection.neighbours, statistics.mean([turn.neighbours for turn in rounds] or [0.0]))
    found = bounds(inspection, rounds)
    judged = verdict(found, inspection, settings, neighbours)
    return Diagnosis(settings, facts.unit, rate, items / rate, judged, found, inspection, neighbours)


def largest_batch(sizes: Sizes, settings: Settings, facts: TaskFacts, inventory: Inventory) -> int | None:
    """The global batch that fits with 10 % headroom, by what a sample of today's batch takes; scripts keep theirs."""
    if facts.script is not None or facts.samples is None:
        return None
    on_gpu = facts.device == "cuda" and inventory.gpus
    limit = inventory.gpus[0].memory_total if on_gpu else inventory.memory.limit // settings.processes
    each = max(1.0, (sizes.step - sizes.parameters) / settings.batch_size)
    fits = int(settings.batch_size + ((1 - HEADROOM) * limit - sizes.peak) / each)
    return max(0, min(facts.samples, fits * settings.processes))


def bounds(inspection: Inspection, rounds: Sequence[Round] = ()) -> dict[Part, Proof]:
    """How many times as fast the step could be at most without a part, or without another cause of its length."""
    found = {part: _clocked([_share(block, part) for block in inspection.blocks]) for part in CLOCKED}
    for part in Part:
        removed, clock = compare(rounds, part.value, STEP), found.get(part)
        contradicts = clock is not None and not removed.low <= clock.value <= removed.high
        if removed.rounds and (clock is None or contradicts or removed.half_width < clock.half_width):
            found[part] = removed
    passes = share_of(found[Part.PASSES])
    loaded = Part.LOADER.value if any(Part.LOADER.value in turn.rates for turn in rounds) else STEP
    quarter, roofline = compare(rounds, QUARTER, loaded), inspection.roofline
    if quarter.rounds:
        others = sum(share_of(found[part]) for part in (Part.UPDATE, Part.EXCHANGE, Part.LOOP))
        rest = 1 - share_of(found[Part.LOADER])
        fixed = (_fixed_share(ratio) * rest - others for ratio in (quarter.value, quarter.high, quarter.low))
        value, low, high = (min(passes, max(0.0, each)) for each in fixed)
        found[Part.OVERHEAD] = _gain(value, low, high, quarter.rounds)
    if roofline.total > 0:
        traffic = passes * roofline.bandwidth / roofline.total
        found[Part.BANDWIDTH] = _gain(traffic, 0.0, traffic, len(inspection.blocks))
    return found


def verdict(found: Mapping[Part, Proof], inspection: Inspection, settings: Settings, neighbours: float) -> Verdict:
    """What bounds the step.

    Args:
        found: `bounds`.
        inspection: of a trial.
        settings: of the step.
        neighbours: processors that others kept busy.
    """
    shares = _shares(found)
    part = max(shares, key=lambda each: shares[each])
    beside = neighbours >= BUSY_CPUS
    if found[part].low <= SURE:
        return Verdict(Bound.UNKNOWN, part, shares, (), Doubt.NEIGHBOURS if beside else Doubt.FEW_ROUNDS)
    others = tuple(each for each in shares if each is not part and shares[each] >= MUCH and found[each].low > SURE)
    fewer = found.get(Part.THREADS)
    if fewer is not None and fewer.low > SURE and (part is Part.PASSES or share_of(fewer) > shares[part]):
        return Verdict(Bound.THREADS, part, shares, others)
    parallel = settings.processes * settings.threads > 1 and part in (Part.PASSES, Part.UPDATE)
    if parallel and beside and inspection.lost > LASTING:
        return Verdict(Bound.UNKNOWN, part, shares, others, Doubt.NEIGHBOURS)
    bound = _bound(part, found, inspection, settings)
    return Verdict(bound, part, shares, others, Doubt.CLOSE if bound is Bound.UNKNOWN else None)


def _shares(found: Mapping[Part, Proof]) -> dict[Part, float]:
    """Of the step's time by part; the passes take what the others leave."""
    own: dict[Part, float] = {part: share_of(found[part]) for part in CLOCKED if part is not Part.PASSES}
    whole = max(1.0, sum(own.values()))
    own = {part: share / whole for part, share in own.items()}
    return own | {Part.PASSES: 1 - sum(own.values())}


def _bound(part: Part, found: Mapping[Part, Proof], inspection: Inspection, settings: Settings) -> Bound:
    if part is Part.LOADER:
        return _input_bound(inspection.loading, settings.num_workers)
    if part is not Part.PASSES:
        return {Part.UPDATE: Bound.UPDATE, Part.EXCHANGE: Bound.EXCHANGE, Part.LOOP: Bound.LOOP}[part]
    roofline, calls = inspection.roofline, found.get(Part.OVERHEAD)
    half = share_of(found[Part.PASSES]) / 2
    if calls is not None and 1 - 1 / calls.low > half:
        return Bound.OVERHEAD
    seconds = {Bound.COMPUTE: roofline.compute, Bound.BANDWIDTH: roofline.bandwidth}
    if calls is None or 1 - 1 / calls.high > half:
        seconds[Bound.OVERHEAD] = roofline.overhead
    first, second = sorted(seconds, key=lambda each: -seconds[each])[:2]
    return first if seconds[first] >= CLEARLY * seconds[second] else Bound.UNKNOWN


def _input_bound(loading: Loading, workers: int) -> Bound:
    """Why a loader is slow."""
    if max(loading.main_busy, loading.worker_busy) < BUSY:
        return Bound.DISK if loading.storage_bytes >= FROM_STORAGE else Bound.SLOW_SOURCE
    return Bound.WORKERS if workers else Bound.MAIN_PROCESS


def _share(block: Mapping[Part, float], part: Part) -> float:
    return block[part] / max(1e-9, sum(block.values()))


def _clocked(shares: Sequence[float]) -> Proof:
    """The bound by a part's share of several blocks. How much processes differ is known beforehand."""
    share, count = statistics.fmean(shares), len(shares)
    if count < 2:
        return _gain(share, 0.0, 1.0, count)
    error = math.hypot(statistics.stdev(shares) / math.sqrt(count), PRIOR_SPREAD * share * (1 - share))
    half = student_quantile(0.5 + CONFIDENCE / 2, count - 1) * error
    return _gain(share, max(0.0, share - half), min(1.0, share + half), count)


def _gain(share: float, low: float, high: float, rounds: int) -> Proof:
    """How many times as fast a step is without a share of it."""
    value, least, most = (1 / (1 - each) if each < 1 else math.inf for each in (share, low, high))
    return Proof(value, least, most, CONFIDENCE, rounds)


def share_of(gain: Proof) -> float:
    """The share of the step that a part takes, 0..1, by what its removal brings."""
    return max(0.0, 1 - 1 / gain.value)


def _fixed_share(ratio: float) -> float:
    """Share of a step that does not shrink with the batch, if a quarter of it has ``ratio`` times the rate.

    A quarter of the batch takes ``a + c / 4`` seconds, and the whole ``a + c``.
    """
    return min(1.0, max(0.0, (1 / ratio - 1) / 3)) if ratio > 0 else 1.0
