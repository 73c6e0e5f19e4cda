"""The proof: generations of the baseline and each level's contender, until a planned look decides."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.knobs.settings import Settings
from autotune.stats.decide import BASELINE, still_open, typical_rate, wide
from autotune.stats.proof import LOOKS
from autotune.tuning.events import GenerationFinished, ProofStarted
from autotune.tuning.generation import run_generation
from autotune.tuning.schedule import generation_seconds
from autotune.tuning.state import RunState
from autotune.tuning.tools import Tools

LEAST_GENERATIONS = 2
"""A single generation proves nothing."""
NARROWED_BY = 14
"""Generations after which the proof no longer goes on only to narrow an interval."""
LEAST_CONTENDERS = 3
"""The baseline and two levels start, even if they seem not to fit: one slow trial makes the estimate too pessimistic.
How long they really take decides then."""

Contenders = Mapping[str, Settings]
"""``baseline`` and levels, lowest first."""


def prove(state: RunState, tools: Tools) -> None:
    """Prove the chosen settings of each level; the rounds are added to ``state``."""
    if not state.chosen:
        return
    contenders = _affordable(state, tools, {BASELINE: state.baseline, **state.chosen})
    tools.observe(ProofStarted())
    for generations in LOOKS:
        contenders = _run_generations(state, tools, contenders, generations - state.generations)
        going_on = still_open(state.chosen, state.rounds)
        if generations < NARROWED_BY:
            going_on |= wide(state.baseline, state.chosen, state.rounds)
        if not going_on:
            break
        contenders = {name: settings for name, settings in contenders.items() if name in {BASELINE, *going_on}}


def _affordable(state: RunState, tools: Tools, contenders: Contenders) -> Contenders:
    """Without the least promising levels if the generations of all would not fit."""
    while len(contenders) > LEAST_CONTENDERS:
        if LEAST_GENERATIONS * generation_seconds(state, contenders.values()) <= tools.schedule.left:
            break
        contenders = without_least_promising(state, contenders)
    return contenders


def without_least_promising(state: RunState, contenders: Contenders) -> Contenders:
    """Without the level that seems to gain least over what is below it."""
    levels = list(contenders)

    def rate(name: str) -> float:
        return typical_rate(state.rounds, name) or state.estimate(contenders[name])

    least = min(levels[1:], key=lambda name: rate(name) / max(map(rate, levels[: levels.index(name)])))
    return {name: settings for name, settings in contenders.items() if name != least}


def _run_generations(state: RunState, tools: Tools, contenders: Contenders, count: int) -> Contenders:
    """Run up to ``count`` generations; returns who took part in the last one.

    If the time left is too short for all, the least promising levels drop out first.
    """
    for _ in range(count):
        while not (rounds := tools.schedule.rounds_that_fit(state, contenders)) and len(contenders) > 2:
            contenders = without_least_promising(state, contenders)
        if not rounds:
            break
        state.rounds += run_generation(state, tools, state.generations + 1, contenders, rounds)
        tools.observe(_generation_finished(state, contenders))
    return contenders


def _generation_finished(state: RunState, contenders: Contenders) -> GenerationFinished:
    """The proof's own rates replace those of single trials, which may have been far off."""
    rates = {name: typical_rate(state.rounds, name) for name in contenders}
    best = max(rates, key=rates.__getitem__)
    return GenerationFinished(rates[BASELINE] or None, contenders[best], rates[best] or None)
