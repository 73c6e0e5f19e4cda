"""From proof rounds to the answer for each level. Pure: the same rounds always give the same profile."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from autotune.knobs.level import AMP, LEVELS
from autotune.knobs.settings import KNOBS, Settings
from autotune.stats.proof import BASELINE, IDENTITY, MOST_SPEEDUP, QUIET_CPUS, Proof, Round, compare, typical_rate

BUSY_CPUS = 0.5
"""A round is disturbed if others keep at least this many processors busy."""
PRECISIONS = [knob.name for knob in KNOBS if knob.level is AMP]
ENOUGH_REPLICATES, ENOUGH_ROUNDS = 2, 4
"""Of quiet and of disturbed rounds, before they are separated."""
OTHER_EFFECTS, ONE_SWITCH, WAITING = 10.0, 16.0, 4.0
"""Compilation, memory, binding and the like together bring no more than the first; a lower precision, or one thread in
workers (12 times was measured on two CPUs), no more than the second. Threads that wait in another way, or are fewer,
bring the third on top: beside others 31 times was measured (decision 023)."""
COLLAPSE = 1.5
"""The user's settings collapse beside a neighbour if they are this many times as fast without it."""


class LevelVerdict(str, Enum):
    """The short answer for a level."""

    GAIN = "gain"
    """Proven faster than the baseline and than the level below."""
    NO_GAIN = "no gain"
    CANNOT_TELL = "cannot tell"
    NOT_TRIED = "not tried"
    FAILED = "failed"
    """All that was tried of it."""
    INTERRUPTED = "interrupted"


class Reason(str, Enum):
    """Why a level has no gain of its own. `autotune.tuning.notes` has the words."""

    NONE = ""
    SAME = "same"
    """Nothing that was tried is faster."""
    UNPROVEN = "unproven"
    """Faster in the proof, but not with confidence: the interval has too low an end."""
    TOO_FEW_ROUNDS = "too few rounds"
    NOISY = "noisy"
    """Trials vary by more than they differ."""
    ALL_FAILED = "all failed"
    NOT_REACHED = "not reached"
    """The budget ended before any trial of the level."""
    NOT_TRIED = "not tried"
    """No trial changed what the level is named for: the precision, the global batch; at ``safe`` nothing else ran."""
    INTERRUPTED = "interrupted"


VERDICTS = {
    Reason.NONE: LevelVerdict.GAIN,
    Reason.SAME: LevelVerdict.NO_GAIN,
    Reason.NOT_REACHED: LevelVerdict.NOT_TRIED,
    Reason.NOT_TRIED: LevelVerdict.NOT_TRIED,
    Reason.ALL_FAILED: LevelVerdict.FAILED,
    Reason.INTERRUPTED: LevelVerdict.INTERRUPTED,
}
"""All other reasons leave the question open."""


@dataclass(frozen=True)
class Answer:
    """The result for one level.

    Attributes:
        settings: to run; those of the level below, or the baseline, if ``proven`` is False.
        rate: items per second.
        speedup: over the baseline.
        proven: True if the level, or the one that it carries, is proven faster.
        reason: why it has no gain of its own; `Reason.NONE` if it has.
        proof: the comparison that did not suffice (`Reason.UNPROVEN`).
        failure: why the last trial failed (`Reason.ALL_FAILED`).
    """

    settings: Settings
    rate: float
    speedup: Proof
    proven: bool
    reason: Reason = Reason.NONE
    proof: Proof | None = None
    failure: str = ""

    @property
    def verdict(self) -> LevelVerdict:
        """Return the short answer."""
        return VERDICTS.get(self.reason, LevelVerdict.CANNOT_TELL)


def decide(
    baseline: Settings,
    baseline_rate: float,
    candidates: Mapping[str, Settings],
    rounds: Sequence[Round],
    levels: Iterable[str] = LEVELS,
    *,
    final: bool = True,
) -> dict[str, Answer]:
    """Return each level's answer, lowest first.

    A level is accepted only if it is proven faster than the baseline and than the level below; else it carries the
    level below, down to the baseline itself.

    Args:
        baseline: the user's settings, called ``"baseline"`` in the rounds.
        baseline_rate: their rate, in items per second.
        candidates: the candidate of each level; a level without one carries the level below.
        rounds: the proof's rounds, none of which chose a candidate.
        levels: the levels to decide, lowest first.
        final: no further analysis will follow.
    """
    below, name = Answer(baseline, baseline_rate, IDENTITY, proven=False), BASELINE
    answers: dict[str, Answer] = {}
    for level in levels:
        settings = candidates.get(level)
        if settings is None or settings == below.settings:
            answers[level] = replace(below, reason=Reason.SAME)
            continue
        proof = compare(rounds, level, BASELINE, final=final)
        step = proof if name == BASELINE else compare(rounds, level, name, final=final)
        if proof.gain and step.gain and proof.value <= possible(settings, baseline):
            below, name = Answer(settings, baseline_rate * proof.value, proof, proven=True), level
            answers[level] = below
        else:
            missing = step if proof.gain else proof
            answers[level] = replace(below, reason=_why_not(missing), proof=missing)
    return answers


def possible(settings: Settings, baseline: Settings) -> float:
    """Return about how many times as fast as ``baseline`` the ``settings`` can be: a larger figure comes from the load
    of another process. Threads, workers and the batch each bring at most their ratio."""
    waits = settings.omp_wait_policy
    ratios = (
        settings.processes * settings.threads / (baseline.processes * baseline.threads),
        (1 + settings.num_workers) / (1 + baseline.num_workers),
        settings.global_batch / baseline.global_batch,
        WAITING if waits != baseline.omp_wait_policy or settings.threads < baseline.threads else 1.0,
        ONE_SWITCH if settings.worker_threads != baseline.worker_threads else 1.0,
        1.0 if all(getattr(settings, name) == getattr(baseline, name) for name in PRECISIONS) else ONE_SWITCH,
    )
    return min(MOST_SPEEDUP, OTHER_EFFECTS * math.prod(max(1.0, ratio) for ratio in ratios))


def undisturbed(rounds: Sequence[Round]) -> tuple[list[Round], float | None]:
    """Return the rounds that decide, and how many times slower the user's settings were in the others; None if all do.

    All rounds decide, unless other processes came or went in the middle of the proof and the user's settings collapsed
    beside them: then the quiet rounds do. What others take is a reason from outside, so the choice favours no
    candidate.
    """
    quiet = [turn for turn in rounds if turn.neighbours <= QUIET_CPUS]
    busy = [turn for turn in rounds if turn.neighbours >= BUSY_CPUS]
    if not (_enough(quiet) and _enough(busy)):
        return list(rounds), None
    slower = typical_rate(quiet, BASELINE) / typical_rate(busy, BASELINE)
    return (quiet, slower) if slower >= COLLAPSE else (list(rounds), None)


def still_open(candidates: Mapping[str, Settings], rounds: Sequence[Round]) -> frozenset[str]:
    """Return the levels that more rounds could decide, and the levels that those are compared with.

    Empty once all is decided. A level that is hopeless against the baseline does not hold up the others.
    """
    found: set[str] = set()
    below = {BASELINE}
    for level in (name for name in LEVELS if name in candidates):
        proofs = {lower: compare(rounds, level, lower, final=False) for lower in {BASELINE, *below}}
        if not (proofs[BASELINE].gain or proofs[BASELINE].undecided):
            continue
        waiting = {lower for lower, proof in proofs.items() if proof.undecided}
        found |= {level, *waiting} if waiting else set()
        below = below | {level} if waiting else {level}
    return frozenset(found)


def wide(baseline: Settings, candidates: Mapping[str, Settings], rounds: Sequence[Round]) -> frozenset[str]:
    """Return the levels with a proven gain whose interval is wider than it need be."""
    answers = decide(baseline, 1.0, candidates, rounds, final=False)
    own = {level for level, answer in answers.items() if answer.proven and answer.settings == candidates.get(level)}
    return frozenset(level for level in own if not answers[level].speedup.narrow)


def _why_not(proof: Proof) -> Reason:
    if proof.rounds == 0 or math.isinf(proof.high):
        return Reason.TOO_FEW_ROUNDS
    if proof.high <= 1.02 or (proof.value <= 1.0 and proof.high <= 1.05):
        return Reason.SAME
    return Reason.UNPROVEN


def _enough(rounds: Sequence[Round]) -> bool:
    replicates = {turn.replicate for turn in rounds if turn.rates.get(BASELINE)}
    return len(replicates) >= ENOUGH_REPLICATES and len(rounds) >= ENOUGH_ROUNDS
