"""What a longer budget would bring, said beside each result that is open or wide."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from autotune.profiles.format import LevelResult
from autotune.stats.decide import BASELINE
from autotune.stats.effort import to_decide, to_narrow
from autotune.stats.proof import WIDE, compare
from autotune.tuning.schedule import PROOF_MARGIN, generation_seconds
from autotune.tuning.state import RunState

MOST_SECONDS = 900.0
"""More than this nobody waits for."""
STEP_SECONDS = 30
"""Budgets are advised in steps of this."""


def advised(state: RunState, results: Mapping[str, LevelResult], seconds: float) -> dict[str, LevelResult]:
    """``results`` with a word on the budget that would settle what is open.

    Args:
        state: what the run knows.
        results: of each level.
        seconds: that the run has taken.
    """
    found = dict(results)
    for level, result in results.items():
        if words := _words(state, level, result, seconds):
            found[level] = replace(result, note="; ".join(filter(None, (result.note, words))))
    return found


def _words(state: RunState, level: str, result: LevelResult, seconds: float) -> str:
    chosen = state.chosen.get(level)
    if chosen is None:
        return ""
    if result.proven and result.settings == chosen:
        wanted = to_narrow(state.rounds, level, BASELINE) if result.speedup.half_width > WIDE else None
        purpose = "narrow it"
    else:
        wanted = to_decide(state.rounds, level, BASELINE) if compare(state.rounds, level, BASELINE).undecided else None
        purpose = "tell"
    if wanted is None:
        return ""
    extra = PROOF_MARGIN * (wanted - state.generations) * generation_seconds(state, [state.baseline, chosen])
    if not 0 < extra <= MOST_SECONDS:
        return ""
    budget = STEP_SECONDS * math.ceil((seconds + extra) / STEP_SECONDS)
    return f"about {math.ceil(extra)} s more would {purpose} (--budget {budget})"
