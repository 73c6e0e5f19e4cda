"""From proof rounds to the result of each level. Pure: the same rounds always give the same profile."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from autotune.knobs.knob import LEVELS
from autotune.knobs.settings import Settings
from autotune.profiles.format import MOST_SPEEDUP, LevelResult
from autotune.stats.proof import IDENTITY, Proof, Round, compare

BASELINE = "baseline"
SAME = {
    "safe": "no gain: nothing that was tried is faster than your settings",
    "amp": "no gain from mixed precision: same settings as safe",
    "max": "no gain from another batch size: same settings as amp",
}
UNPROVEN = "cannot tell: {value:.2f}x measured, but not proven ({low:.2f} to {high})"
UNTRIED = "cannot tell: not proven within the budget"
UNREACHED = "not reached within the budget: a longer --budget tries it"


def decide(
    baseline: Settings,
    baseline_rate: float,
    contenders: Mapping[str, Settings],
    rounds: Sequence[Round],
    levels: Sequence[str] = LEVELS,
    *,
    final: bool = True,
) -> dict[str, LevelResult]:
    """Each level's result, lowest first.

    A level is accepted only where it is proven faster than the baseline and than the level below; else it carries the
    level below, down to the baseline itself.

    Args:
        baseline: the user's settings, called ``"baseline"`` in the rounds.
        baseline_rate: their rate, in items per second.
        contenders: the candidate of each level; a level without one carries the level below.
        rounds: the proof's rounds, none of which chose a contender.
        levels: the levels to decide, lowest first.
        final: no further look will be taken.
    """
    below, name = LevelResult(baseline, baseline_rate, IDENTITY, proven=False), BASELINE
    results: dict[str, LevelResult] = {}
    for level in levels:
        settings = contenders.get(level)
        if settings is None or settings == below.settings:
            results[level] = _carried(below, SAME[level])
            continue
        proof = compare(rounds, level, BASELINE, final=final)
        step = proof if name == BASELINE else compare(rounds, level, name, final=final)
        if proof.gain and step.gain and proof.value <= MOST_SPEEDUP:
            below, name = LevelResult(settings, baseline_rate * proof.value, proof, proven=True), level
            results[level] = below
        else:
            results[level] = _carried(below, _why_not(step if proof.gain else proof, level))
    return results


def still_open(contenders: Mapping[str, Settings], rounds: Sequence[Round]) -> frozenset[str]:
    """Contenders that need more rounds: levels that more rounds could decide, and what those are compared with.

    Empty once all is decided. A level that is hopeless against the baseline does not hold up the others.
    """
    found: set[str] = set()
    below = {BASELINE}
    for level in (name for name in LEVELS if name in contenders):
        proofs = {lower: compare(rounds, level, lower, final=False) for lower in {BASELINE, *below}}
        if not (proofs[BASELINE].gain or proofs[BASELINE].undecided):
            continue
        waiting = {lower for lower, proof in proofs.items() if proof.undecided}
        found |= {level, *waiting} if waiting else set()
        below = below | {level} if waiting else {level}
    return frozenset(found)


def wide(
    baseline: Settings, contenders: Mapping[str, Settings], rounds: Sequence[Round], levels: Sequence[str] = LEVELS
) -> frozenset[str]:
    """Contenders with a proven gain whose interval is wider than it need be."""
    results = decide(baseline, 1.0, contenders, rounds, levels, final=False)
    own = {level for level, result in results.items() if result.proven and result.settings == contenders.get(level)}
    return frozenset(level for level in own if not results[level].speedup.narrow)


def typical_rate(rounds: Sequence[Round], name: str) -> float:
    """Geometric mean of a contender's rates: the ratio of two of them is the proof's value."""
    logs = [math.log(turn.rates[name]) for turn in rounds if turn.rates.get(name, 0.0) > 0]
    return math.exp(sum(logs) / len(logs)) if logs else 0.0


def _carried(below: LevelResult, note: str) -> LevelResult:
    return LevelResult(below.settings, below.rate, below.speedup, below.proven, note)


def _why_not(proof: Proof, level: str) -> str:
    if proof.rounds == 0 or math.isinf(proof.high):
        return UNTRIED
    if proof.high <= 1.02 or (proof.value <= 1.0 and proof.high <= 1.05):
        return SAME[level]
    high = f"{proof.high:.2f}" if proof.high < 1000 else "anything"
    return UNPROVEN.format(value=proof.value, low=proof.low, high=high)
