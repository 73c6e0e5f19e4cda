"""A diagnosis for people."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator

from autotune.diagnosis.diagnose import Diagnosis
from autotune.diagnosis.inspection import SlowOperator
from autotune.diagnosis.memory import LargestBatch
from autotune.diagnosis.passes import BANDWIDTH, COMPUTE, OVERHEAD
from autotune.diagnosis.verdict import THREADS
from autotune.report import formatting
from autotune.stats.proof import Proof
from autotune.trial.parts import EXCHANGE, LOADER, UPDATE

WITHOUT = {
    LOADER: "a free loader",
    UPDATE: "a free update",
    EXCHANGE: "a free exchange",
    THREADS: "no more threads than CPUs",
    OVERHEAD: "free calls of operators",
    BANDWIDTH: "free memory traffic",
}
LIMITS = {COMPUTE: "matrix rate", BANDWIDTH: "memory bandwidth"}
NOTHING = 1.005
"""Bounds below this are not worth a line."""


def text(name: str, found: Diagnosis, seconds: float) -> str:
    """The whole diagnosis as plain text.

    Args:
        name: of the target.
        found: its diagnosis.
        seconds: that it took.
    """
    rows = [
        *_section("diagnose", [f"{name} ({formatting.duration(seconds)})"]),
        *_section("Verdict", [found.verdict.sentence]),
        *_section("Step", _step(found)),
        *_section("At most", _bounds(found)),
        *_section("Limits", [_limits(found)]),
        *_section("Slowest", [_operator(row) for row in found.inspection.slowest]),
        *_section("Memory", _memory(found)),
        *_section("Note", found.notes),
    ]
    return "\n".join(rows)


def _section(name: str, lines: Iterable[str]) -> Iterator[str]:
    head = f"{name:<10}"
    for line in lines:
        for part in textwrap.wrap(line, formatting.WIDTH - 10):
            yield f"{head}{part}"
            head = " " * 10


def _step(found: Diagnosis) -> Iterator[str]:
    """The step and each part by itself."""
    inspection, loader = found.inspection, found.inspection.loader
    rate, settings = formatting.rate(found.rate, found.unit), formatting.summary(found.settings)
    yield f"{_time(inspection.step_seconds)}, {rate} with {settings}"
    parts = [f"update {_time(inspection.update_seconds)}"]
    if loader is not None:
        parts.insert(0, f"loader {_time(loader.batch_seconds)} a batch")
        parts.append(f"start of an epoch {_time(loader.epoch_seconds)}")
    if inspection.exchange_seconds is not None:
        parts.append(f"gradient exchange {_time(inspection.exchange_seconds)}")
    if inspection.copy_seconds is not None:
        size = formatting.size(inspection.sizes.batch)
        parts.append(f"copy to the device {_time(inspection.copy_seconds)} ({size})")
    yield f"alone: {', '.join(parts)}"


def _bounds(found: Diagnosis) -> list[str]:
    """What each part could bring, the most first."""
    ranked = sorted(found.bounds.items(), key=lambda item: -item[1].value)
    return [f"{WITHOUT[part]}: {bound(gain)}" for part, gain in ranked if gain.value >= NOTHING] or ["no part: 1.00x"]


def bound(gain: Proof) -> str:
    """``1.41x (1.35 to 1.48)``."""
    value = formatting.times(gain.value) if math.isfinite(gain.value) else "any"
    high = f"{gain.high:.2f}" if math.isfinite(gain.high) else "any"
    return f"{value} ({gain.low:.2f} to {high})"


def _limits(found: Diagnosis) -> str:
    words = [f"{share:.0%} of this machine's {LIMITS[name]}" for name, share in found.used.items()]
    return ", ".join(words) or "unknown"


def _operator(row: SlowOperator) -> str:
    shapes = " ".join("x".join(map(str, shape)) for shape in row.shapes[:3])
    return f"{row.name} {shapes}: {_time(row.seconds)} in {row.calls:.0f} calls"


def _memory(found: Diagnosis) -> Iterator[str]:
    sizes = found.inspection.sizes
    yield (
        f"peak {formatting.size(sizes.peak)} in each process: parameters {formatting.size(sizes.parameters)},"
        f" gradients {formatting.size(sizes.gradients)}, optimizer state {formatting.size(sizes.optimizer_state)},"
        f" activations {formatting.size(sizes.activations)}, Python, data and temporary {formatting.size(sizes.other)}"
    )
    if sizes.reserved:
        yield (
            f"the allocator holds {formatting.size(sizes.reserved)} of the device, {formatting.size(sizes.split)} of it"
            " in unused parts of blocks (torch.cuda.memory_summary)"
        )
    if found.largest_batch is not None:
        yield _largest(found.largest_batch)


def _largest(batch: LargestBatch) -> str:
    what = "the whole dataset fits in one batch" if batch.all_data else f"largest batch: about {batch.samples} samples"
    ran = f"; ran with {batch.ran}: {formatting.size(batch.peak)}" if batch.ran else "; not run"
    return f"{what} with 10 % headroom{ran}"


def _time(seconds: float) -> str:
    """``1.25 ms``: three significant digits."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
