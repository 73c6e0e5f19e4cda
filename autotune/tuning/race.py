"""The race: near-best candidates run side by side, and the slower half leaves after each rung (successive halving).

A race chooses what the proof compares, together with the trials. Its rounds prove nothing, since they are what the
choice was made by.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from autotune.knobs.settings import Settings
from autotune.search.planner import rank
from autotune.stats.proof import typical_rate
from autotune.tuning.proof import run_replicate
from autotune.tuning.schedule import proof_seconds, replicate_seconds, rounds_per_replicate
from autotune.tuning.state import RunState

RUNGS = 2
BLOCK_SECONDS = 0.3
"""Twice a proof's: a race has few replicates, so that each must show more."""
MOST_CANDIDATES = 4
"""Of each level."""
CLOSE, CLOSE_NOISE = 0.05, 1.5
"""An estimate may be the true best if it is within this share of the best estimate, or within this many standard
deviations of a trial."""
EQUAL = 0.99
"""Rates this close are the same within noise."""
SELECTION_BIAS = 0.5
"""Standard deviations of a trial by which the fastest of a few seems faster than it is."""

Rate = Callable[[Settings], float]
Ranked = Mapping[str, Sequence[Settings]]
"""Candidates of each level, best guess first."""


def near_best(state: RunState) -> dict[str, list[Settings]]:
    """Return, for each level, settings that no lower level offers and that may be as fast as the best, oldest first."""
    margin = max(CLOSE, CLOSE_NOISE * state.noise)
    near: dict[str, list[Settings]] = {}
    lower = {state.baseline}
    for level, space in state.spaces.items():
        known = [settings for settings in state.estimates if settings in space]
        bar = max(map(state.estimate, known), default=0.0) * (1 - margin)
        near[level] = [settings for settings in known if settings not in lower and state.estimate(settings) >= bar]
        lower.update(known)
    return near


def ranked_candidates(state: RunState) -> dict[str, list[Settings]]:
    """Return `near_best` for each level that has any, best guess first."""
    found: dict[str, list[Settings]] = {}
    for level, near in near_best(state).items():
        if near:
            ranked = rank(state.history, state.spaces[level], len(state.estimates))
            found[level] = [settings for settings in ranked if settings in near][:MOST_CANDIDATES]
    return found


def race(state: RunState, candidates: Ranked) -> dict[str, Settings]:
    """Return the fastest candidate of each level that improves on those below; by trials alone without time to race.

    Args:
        state: what is known; the race's rounds are added.
        candidates: settings of each level, best guess first.
    """
    measured: list[Mapping[Settings, float]] = [state.estimates]

    def speedup(settings: Settings) -> float:
        """Return the geometric mean over trials and rungs, for one process may be off by a third; 0 after a failure."""
        pairs = [(rates[settings], rates.get(state.baseline)) for rates in measured if settings in rates]
        ratios = [rate / own for rate, own in pairs if own]
        return statistics.geometric_mean(ratios) if ratios and min(ratios) > 0 else 0.0

    left = {level: list(settings) for level, settings in candidates.items()}
    winners = best_of_levels(state, left, state.estimate)
    for _ in range(RUNGS):
        left = _affordable(state, left)
        if all(len(settings) < 2 for settings in left.values()):
            break
        measured.append(_rung(state, _runners(state, left)))
        left = {level: sorted(settings, key=speedup, reverse=True) for level, settings in left.items()}
        winners = best_of_levels(state, left, speedup)
        left = {level: left[level][: math.ceil(len(left[level]) / 2)] for level in winners}
    return winners


def best_of_levels(state: RunState, ranked: Ranked, rate: Rate) -> dict[str, Settings]:
    """Return the best of each level, or the simplest that is as fast, if it improves on all levels below.

    Args:
        state: what is known.
        ranked: settings of each level, best first.
        rate: items per second, by trials or by a race.
    """
    best = {level: _simplest(state, settings, rate) for level, settings in ranked.items()}
    return improving(state, best, rate)


def improving(state: RunState, best: Mapping[str, Settings], rate: Rate) -> dict[str, Settings]:
    """Drop the levels that are not clearly faster than all below them.

    The fastest of several seems faster by chance, and proving that it is not would take time from other levels.
    """
    kept: dict[str, Settings] = {}
    margin = 1 + SELECTION_BIAS * state.noise
    bar = margin * rate(state.baseline)
    for level, settings in best.items():
        if rate(settings) > bar:
            kept[level] = settings
            bar = margin * rate(settings)
    return kept


def _simplest(state: RunState, ranked: Sequence[Settings], rate: Rate) -> Settings:
    """Return the best, or one as fast that changes fewer knobs: what does not matter stays as the user has it."""
    equal = [settings for settings in ranked if rate(settings) >= EQUAL * rate(ranked[0])]
    return min(equal, key=lambda settings: len(settings.difference(state.baseline)))


def _affordable(state: RunState, candidates: Mapping[str, list[Settings]]) -> dict[str, list[Settings]]:
    """Drop the least likely candidates of the longest lists, until a rung fits before the proof."""
    left = {level: list(settings) for level, settings in candidates.items()}
    time_left = state.schedule.left - proof_seconds(state, len(left))
    while max(map(len, left.values()), default=0) > 1:
        if replicate_seconds(state, _runners(state, left), BLOCK_SECONDS) <= time_left:
            break
        max(left.values(), key=len).pop()
    return left


def _runners(state: RunState, candidates: Ranked) -> list[Settings]:
    """Return all that runs in a rung, once. The baseline takes part to show who is no faster."""
    return list(dict.fromkeys([state.baseline, *(s for settings in candidates.values() for s in settings)]))


def _rung(state: RunState, runners: Sequence[Settings]) -> dict[Settings, float]:
    """Run ``runners`` side by side once, and return items per second; 0 for settings that failed."""
    state.observe(stage="race between candidates")
    names = {str(number): settings for number, settings in enumerate(runners)}
    rounds = run_replicate(state, 0, names, rounds_per_replicate(state), BLOCK_SECONDS)
    state.race_rounds += rounds
    state.raced |= set(runners)
    return {settings: typical_rate(rounds, name) for name, settings in names.items()}
