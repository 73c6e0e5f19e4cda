"""Words for ``autotune diagnose`` and ``autotune doctor``."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from autotune.inspect.verdict import CLOCKED, Bound, Diagnosis, Part, Place
from autotune.knobs.worker_threads import SEVERAL
from autotune.report import formatting

if TYPE_CHECKING:
    from autotune.inspect.doctor import Finding

NAMES = {
    Part.LOADER: "loader",
    Part.LOOP: "your loop outside the step",
    Part.PASSES: "forward and backward",
    Part.UPDATE: "optimizer",
    Part.GRADIENT_SYNC: "gradient sync",
}
MEANINGS = {
    Bound.MAIN_PROCESS: "the training process itself reads and augments samples",
    Bound.WORKERS: "training waits for its loader workers, which are busy on their CPUs",
    Bound.DISK: "training waits for its loader, which waits for the disk",
    Bound.SLOW_SOURCE: "training waits for its loader, which waits itself (for a network, a lock, a pause)",
    Bound.UPDATE: "the optimizer's step takes {share:.0%} of a step",
    Bound.GRADIENT_SYNC: "gradient sync between processes takes {share:.0%} of a step",
    Bound.LOOP: "your loop outside the step: {share:.0%}",
    Bound.THREADS: "more threads are busy than CPUs are free, and they wait for each other",
    Bound.PASSES: "the forward and backward passes take {share:.0%} of a step",
}
ADVICE = {
    Bound.MAIN_PROCESS: "DataLoader(num_workers=...), so that workers do it meanwhile; cheaper samples",
    Bound.WORKERS: "more workers; cheaper samples",
    Bound.DISK: "fewer and larger files, a cache, a faster disk",
    Bound.SLOW_SOURCE: "more workers, which wait side by side",
    Bound.UPDATE: "a fused optimizer (fused=True), a larger batch, sparse gradients",
    Bound.GRADIENT_SYNC: "fewer processes, a larger batch, another backend",
    Bound.LOOP: "log, print and evaluate less often: every 100 steps instead of each",
    Bound.THREADS: "fewer threads: torch.set_num_threads, or OMP_NUM_THREADS",
    Bound.PASSES: "bf16, more cores, a larger batch; many small operators: torch.compile",
}
DOUBTS = {
    Bound.BUSY: "other processes keep {neighbours:.1f} CPUs busy, and the training waits for them; try again when"
    " they are done",
    Bound.FEW_STEPS: "the budget allowed too few steps for an interval; try a longer --budget",
}
UNEQUAL, MOST_UNEQUAL = 2.0, 0.8
"""A worker does too much from so many times its share on, and in any case from that share of all."""
NOTHING = 1.05
"""Bounds below this are not worth a line."""
LEAST = 0.5
"""A step without a part is not twice as slow: an interval that allows it says nothing."""
SEEN = 0.005
"""Smaller shares are left out."""
HEALTHY = "nothing found that costs speed on this machine"


def text(name: str, found: Diagnosis, seconds: float) -> str:
    """Return the whole diagnosis of the target ``name``, which took ``seconds``, as plain text."""
    bound = found.verdict.bound
    rows = [
        *formatting.section("diagnose", [f"{name} ({formatting.duration(seconds)})"]),
        *formatting.section("Verdict", [sentence(found)]),
        *formatting.section("Try", _advice(found)),
        *formatting.section("Step", _step(found)),
        *formatting.section("Operators", _operators(found) if bound is Bound.PASSES else []),
        *formatting.section("At most", _bounds(found)),
        *formatting.section("Note", found.notes),
    ]
    return "\n".join(rows)


def as_data(name: str, found: Diagnosis) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    judged = found.verdict
    words = {"target": name, "sentence": sentence(found), "shares": judged.shares, "settings": found.settings.as_dict()}
    return asdict(found) | words | {"verdict": judged.bound}


def sentence(found: Diagnosis) -> str:
    """Return the verdict, and where most of that time goes."""
    judged = found.verdict
    if judged.bound in DOUBTS:
        doubt = DOUBTS[judged.bound].format(neighbours=found.neighbours)
        return f"cannot tell: {judged.shares[judged.part]:.0%} of a step is {NAMES[judged.part]}, but {doubt}"
    place = found.inspection.places.get(judged.part)
    meaning = MEANINGS[judged.bound].format(share=judged.shares[judged.part])
    words = f"{judged.bound.value.partition(':')[0]}: {meaning}"
    if place is not None and judged.bound in (Bound.LOOP, Bound.MAIN_PROCESS):
        words += f", {_place(place)}"
    return words


def _advice(found: Diagnosis) -> Iterator[str]:
    """Yield what to do about the verdict, first about workers whose libraries take each other's CPUs."""
    workers, threads = found.settings.num_workers, found.inspection.load_threads
    if workers and threads >= SEVERAL:
        yield (
            f"one thread for libraries such as NumPy's BLAS in each of your {workers} workers, which have {threads:.1f}"
            " busy threads each: threadpoolctl.threadpool_limits(1) in worker_init_fn"
        )
    most = found.inspection.most_of_workers
    if workers > 1 and found.verdict.part is Part.LOADER and most >= min(UNEQUAL / workers, MOST_UNEQUAL):
        yield f"one of your {workers} workers does {most:.0%} of the work: a stream needs a shard of one size for each"
    if found.verdict.bound in ADVICE:
        yield ADVICE[found.verdict.bound]


def _place(place: Place) -> str:
    """Return ``most of it in log_metrics (train.py:41)``."""
    where = f"{place.file}:{place.line}"
    where = where if place.function == "<module>" else f"{place.function} ({where})"
    return f"most of it in {where}" if place.share > 0.5 else f"{place.share:.0%} of that in {where}"


def _step(found: Diagnosis) -> Iterator[str]:
    """Yield time, rate and batch of the same blocks, and the share of each part."""
    rate, settings = formatting.rate(found.rate, found.unit), formatting.summary(found.settings)
    yield f"{_time(found.step_seconds)}, {rate} with {settings}"
    shares = found.verdict.shares
    ranked = sorted(CLOCKED, key=lambda part: -shares[part])
    yield ", ".join(f"{NAMES[part]} {shares[part]:.0%}" for part in ranked if shares[part] >= SEEN)


def _operators(found: Diagnosis) -> Iterator[str]:
    """Yield the operators that take most of a step, by PyTorch's profiler: many calls show small ones."""
    for each in found.inspection.operators:
        if each.share >= SEEN:
            yield f"{each.name}: {each.share:.0%}, {formatting.count(max(1, round(each.calls)), 'call')} a step"


def _bounds(found: Diagnosis) -> list[str]:
    """Return what each part could bring, the most first."""
    fewer = f"{formatting.count(found.threads or 0, 'thread')} in place of {found.settings.threads}"
    words = {part: f"a free {name}" for part, name in NAMES.items()}
    words |= {Part.LOOP: "nothing but the step in your loop", Part.THREADS: fewer}
    ranked = sorted(found.bounds.items(), key=lambda item: -item[1].value)
    return [
        f"{words[part]}: {formatting.short(gain)}"
        for part, gain in ranked
        if part is not Part.PASSES and gain.value >= NOTHING and gain.low >= LEAST
    ]


def _time(seconds: float) -> str:
    """Return ``1.25 ms``: three significant digits."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def doctor(found: Sequence[Finding]) -> str:
    """Return each finding with its fix and its gain. Only lines to copy may be wider than 80 columns."""
    paragraphs = []
    for each in found:
        what = textwrap.fill(f"{each.name}: {each.what}", formatting.WIDTH, subsequent_indent="  ")
        paragraphs.append(f"{what}\n  fix    {each.fix}\n  gain   {each.gain}")
    return "\n\n".join(paragraphs) or HEALTHY
