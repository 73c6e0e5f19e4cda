"""From what trials have measured to a `Diagnosis`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.diagnosis.inspection import Inspection
from autotune.diagnosis.memory import LargestBatch
from autotune.diagnosis.passes import (
    BANDWIDTH,
    OVERHEAD,
    Limits,
    PassSeconds,
    fixed_share,
    pass_seconds,
    used,
    without_share,
)
from autotune.diagnosis.verdict import THREADS, Verdict, verdict
from autotune.knobs.settings import Settings
from autotune.stats.proof import Proof, Round, compare
from autotune.trial.parts import EXCHANGE, LOADER, REMOVABLE, UPDATE

STEP = "step"
Share = tuple[float, float, float]


@dataclass(frozen=True)
class Diagnosis:
    """Why a training step takes as long as it does.

    Attributes:
        settings: the user's.
        rate: items per second.
        unit: what rates count.
        verdict: what bounds the step.
        bounds: how much faster the step could be at most without a part, by part.
        inspection: each part by itself.
        used: shares of the machine's limits.
        largest_batch: that would fit; None where that is unknown.
        notes: what could not be measured, and why.
    """

    settings: Settings
    rate: float
    unit: str
    verdict: Verdict
    bounds: Mapping[str, Proof]
    inspection: Inspection
    used: Mapping[str, float]
    largest_batch: LargestBatch | None = None
    notes: tuple[str, ...] = ()


def contenders(settings: Settings, threads: int) -> dict[str, tuple[Settings, str]]:
    """What runs in turn: settings and the part that each leaves out, by name.

    Args:
        settings: the user's.
        threads: busy threads that fit this machine.
    """
    found = {STEP: (settings, "")}
    for part in REMOVABLE[: len(REMOVABLE) if settings.processes > 1 else -1]:
        found[part] = (settings, part)
    busy = settings.processes * settings.threads + settings.num_workers * settings.processes
    fewer = max(1, threads // settings.processes - settings.num_workers)
    if busy > threads and fewer < settings.threads:
        found[THREADS] = (settings.but(threads=fewer), "")
    return found


def diagnose(
    rounds: Sequence[Round], inspection: Inspection, limits: Limits, settings: Settings, unit: str, rate: float
) -> Diagnosis:
    """The diagnosis of a step.

    Args:
        rounds: of `contenders`.
        inspection: each part by itself.
        limits: of this machine.
        settings: the user's.
        unit: what rates count.
        rate: items per second.
    """
    names = sorted({name for turn in rounds for name in turn.rates} - {STEP})
    bounds = {name: compare(rounds, name, STEP) for name in names}
    passes = pass_seconds(inspection, limits)
    found = verdict(bounds, inspection, passes, settings)
    step = settings.global_batch / rate if unit == "samples" and rate else inspection.step_seconds
    share = _pass_share([bounds[name] for name in REMOVABLE if name in bounds])
    bounds |= _pass_bounds(share, inspection, passes, step)
    return Diagnosis(settings, rate, unit, found, bounds, inspection, used(inspection, limits, step))


def quick_verdict(inspection: Inspection, limits: Limits, settings: Settings, load_share: float) -> Verdict:
    """The verdict from one trial, without removing any part: what ``tune`` says.

    Args:
        inspection: each part by itself.
        limits: of this machine.
        settings: the user's.
        load_share: share of the step that waits for the loader.
    """
    waits = {LOADER: load_share * inspection.step_seconds, UPDATE: inspection.update_seconds}
    if inspection.exchange_seconds is not None:
        waits[EXCHANGE] = inspection.exchange_seconds
    shares = {part: min(1.0, each / inspection.step_seconds) for part, each in waits.items()}
    gains = {part: without_share((share, share, share)) for part, share in shares.items()}
    return verdict(gains, inspection, pass_seconds(inspection, limits), settings)


def _pass_share(removed: Sequence[Proof]) -> Share:
    """Share of the step that is left without what was removed: (value, low, high)."""
    value = 1 - sum(max(0.0, 1 - 1 / gain.value) for gain in removed)
    low = 1 - sum(max(0.0, 1 - 1 / gain.high) for gain in removed)
    high = 1 - sum(max(0.0, 1 - 1 / gain.low) for gain in removed if gain.low > 0)
    return max(0.0, value), max(0.0, low), min(1.0, max(0.0, high))


def _pass_bounds(share: Share, inspection: Inspection, passes: PassSeconds, step: float) -> dict[str, Proof]:
    """What forward and backward passes could gain without the cost of calling operators, and without waiting for
    memory. Where the batch cannot be cut, overhead is at least what calls cost, and at most all but the kernels."""
    wall = max(share[0] * step, 1e-9)
    calls = sorted(min(1.0, max(0.0, each)) for each in (passes.overhead / wall, 1 - passes.kernels / wall))
    overhead = fixed_share(inspection.batches) or (sum(calls) / 2, calls[0], calls[1])
    traffic = sorted(min(1.0, passes.bandwidth / each) for each in (max(wall, 1e-9), max(passes.total, 1e-9)))
    parts = {OVERHEAD: overhead, BANDWIDTH: (sum(traffic) / 2, traffic[0], traffic[1])}
    return {name: without_share(_product(share, part)) for name, part in parts.items()}


def _product(left: Share, right: Share) -> Share:
    return left[0] * right[0], left[1] * right[1], left[2] * right[2]
