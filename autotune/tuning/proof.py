"""The proof: replicates of the baseline and each level's candidate, until a planned interim analysis decides."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from autotune.knobs.settings import Settings
from autotune.stats.decide import still_open, wide
from autotune.stats.proof import ANALYSES, BASELINE, Round, compare, to_decide, typical_rate
from autotune.tuning.schedule import (
    BLOCK_SECONDS,
    PROOF_MARGIN,
    block_seconds,
    replicate_seconds,
    rounds_that_fit,
    starting_seconds,
)
from autotune.tuning.state import RunState

LEAST_REPLICATES = 2
"""A single replicate proves nothing."""
NARROWED_BY = 14
"""Replicates after which the proof no longer goes on only to narrow an interval."""
LEAST_CANDIDATES = 3
"""The baseline and two levels start, even if they seem not to fit: one slow trial makes the estimate too pessimistic.
How long they really take decides then."""

ADVICE = "in your code"
"""Name of what only the user's own code can change."""

Candidates = Mapping[str, Settings]
"""``baseline`` and levels, lowest first; then perhaps `ADVICE`."""


def prove(state: RunState) -> None:
    """Prove the chosen settings of each level; the rounds are added to ``state``."""
    advised = {} if state.advised is None else {ADVICE: state.advised}
    candidates: Candidates = {BASELINE: state.baseline, **state.chosen, **advised}
    if len(candidates) == 1:
        return
    seconds = LEAST_REPLICATES * replicate_seconds(state, candidates.values())
    if len(candidates) > LEAST_CANDIDATES and seconds > state.schedule.left:
        candidates = without_least_promising(state, candidates)
    state.observe(stage="proof")
    for replicates in ANALYSES:
        candidates = _run_replicates(state, candidates, replicates - state.replicates)
        going_on = still_open(state.chosen, state.rounds)
        if replicates < NARROWED_BY:
            going_on |= wide(state.baseline, state.chosen, state.rounds)
        if ADVICE in candidates and compare(state.rounds, ADVICE, BASELINE, final=False).undecided:
            going_on |= {ADVICE}
        if not going_on:
            break
        candidates = {name: settings for name, settings in candidates.items() if name in {BASELINE, *going_on}}


def seconds_to_decide(state: RunState) -> float:
    """Return how much longer than the budget the proof of an open level would take; 0 if none is open or hopeful."""
    open_levels = still_open(state.chosen, state.rounds) - {BASELINE}
    wanted = [count for level in open_levels if (count := to_decide(state.rounds, level, BASELINE)) is not None]
    if not wanted:
        return 0.0
    each = PROOF_MARGIN * replicate_seconds(state, [state.baseline, *(state.chosen[level] for level in open_levels)])
    return max(0.0, (min(wanted) - state.replicates) * each - state.schedule.left)


def run_replicate(
    state: RunState, number: int, candidates: Candidates, count: int, seconds: float = BLOCK_SECONDS
) -> list[Round]:
    """Start all ``candidates`` in fresh processes, and run ``count`` rounds of them as replicate ``number``.

    Blocks take so many ``seconds`` on a quiet machine, longer beside others. Number 0 is a race.
    """
    rounds: list[Round] = []
    waits: list[float] = []
    seconds = block_seconds(state, seconds)
    began = state.schedule.clock()
    with state.bench.start_replicate(candidates) as replicate:
        state.slowness = (state.schedule.clock() - began) / starting_seconds(state, candidates.values())
        for _ in range(count):
            rates = {name: rate * state.worth(candidates[name]) for name, rate in replicate.round(seconds).items()}
            rounds.append(Round(number, rates, replicate.neighbours))
            waits.append(replicate.cpu_wait)
            if number:  # a race's candidates have no names
                state.observe(rounds=dict.fromkeys(rounds[-1].rates, len(state.rounds) + len(rounds)))
    state.cpu_wait = statistics.mean(waits or [state.cpu_wait])
    return rounds


def without_least_promising(state: RunState, candidates: Candidates) -> Candidates:
    """Return ``candidates`` without the level that seems to gain least over the ones below it."""
    levels = list(candidates)

    def rate(name: str) -> float:
        return typical_rate(state.rounds, name) or state.estimate(candidates[name])

    least = min(levels[1:], key=lambda name: rate(name) / max(map(rate, levels[: levels.index(name)])))
    return {name: settings for name, settings in candidates.items() if name != least}


def _run_replicates(state: RunState, candidates: Candidates, count: int) -> Candidates:
    """Run up to ``count`` replicates, and return the candidates of the last one.

    If the time left is too short for all, the least promising levels drop out first.
    """
    for _ in range(count):
        while not (rounds := rounds_that_fit(state, candidates)) and len(candidates) > 2:
            candidates = without_least_promising(state, candidates)
        if not rounds:
            break
        state.rounds += run_replicate(state, state.replicates + 1, candidates, rounds)
        rates = {name: typical_rate(state.rounds, name) for name in candidates}  # single trials may have been far off
        best = max((name for name in rates if name != ADVICE), key=rates.__getitem__)
        gain = compare(state.rounds, best, BASELINE, final=False)
        state.observe(baseline_rate=rates[BASELINE] or None, best=candidates[best], gain=gain)
    return candidates
