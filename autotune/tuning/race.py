"""The race: finalists run side by side, and the slower half leaves after each rung (successive halving).

A race chooses the contenders of the proof, together with the trials. Its rounds prove nothing, since they are what the
choice was made by.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from functools import partial

from autotune.knobs.settings import Settings
from autotune.stats.decide import typical_rate
from autotune.tuning.events import RaceStarted
from autotune.tuning.finalists import leaders
from autotune.tuning.generation import run_generation
from autotune.tuning.schedule import generation_seconds, rounds_per_generation
from autotune.tuning.state import RunState
from autotune.tuning.tools import Tools

RUNGS = 2
BLOCK_SECONDS = 0.3
"""Twice a proof's: a race has few generations, so that each must say more."""


def race(state: RunState, tools: Tools, finalists: Mapping[str, Sequence[Settings]]) -> dict[str, Settings]:
    """The fastest finalist of each level that improves on those below; by trials alone if there is no time to race.

    Args:
        state: what is known; the race's rounds are added.
        tools: where the race runs.
        finalists: settings of each level, best guess first.
    """
    left = {level: list(settings) for level, settings in finalists.items()}
    winners = leaders(state, left, state.estimate)
    looks: list[Mapping[Settings, float]] = [state.estimates]
    for _ in range(RUNGS):
        left = _affordable(state, tools, left)
        if all(len(settings) < 2 for settings in left.values()):
            break
        looks.append(_rung(state, tools, _runners(state, left)))
        score = partial(_score, tuple(looks), state.baseline)
        left = {level: sorted(settings, key=score, reverse=True) for level, settings in left.items()}
        winners = leaders(state, left, score)
        left = {level: left[level][: math.ceil(len(left[level]) / 2)] for level in winners}
    return winners


def _score(looks: Sequence[Mapping[Settings, float]], baseline: Settings, settings: Settings) -> float:
    """Speed over the baseline: the geometric mean of what trials and rungs say. One process may be off by a third.

    Args:
        looks: items per second by settings, each with the baseline's.
        baseline: the user's settings.
        settings: of which a look may know nothing; 0 where they failed in one.
    """
    ratios = [look[settings] / look[baseline] for look in looks if settings in look and look.get(baseline)]
    return statistics.geometric_mean(ratios) if ratios and min(ratios) > 0 else 0.0


def _affordable(state: RunState, tools: Tools, finalists: Mapping[str, list[Settings]]) -> dict[str, list[Settings]]:
    """Without the least likely finalists of the longest lists, until a rung fits before the proof."""
    left = {level: list(settings) for level, settings in finalists.items()}
    time_left = tools.schedule.left - tools.schedule.proof_seconds(state, len(left))
    while max(map(len, left.values()), default=0) > 1:
        if generation_seconds(state, _runners(state, left), BLOCK_SECONDS) <= time_left:
            break
        max(left.values(), key=len).pop()
    return left


def _runners(state: RunState, finalists: Mapping[str, Sequence[Settings]]) -> list[Settings]:
    """Everything that runs in a rung, once. The baseline takes part to show who is no faster."""
    return list(dict.fromkeys([state.baseline, *(s for settings in finalists.values() for s in settings)]))


def _rung(state: RunState, tools: Tools, runners: Sequence[Settings]) -> dict[Settings, float]:
    """Items per second of settings that run side by side once; 0 for one that failed."""
    tools.observe(RaceStarted())
    names = {str(number): settings for number, settings in enumerate(runners)}
    rounds = run_generation(state, tools, 0, names, rounds_per_generation(state), BLOCK_SECONDS)
    state.race_rounds += rounds
    state.raced |= set(runners)
    return {settings: typical_rate(rounds, name) for name, settings in names.items()}
