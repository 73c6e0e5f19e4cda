"""Who may be the best of each level, by trials or by a race."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autotune.knobs.settings import Settings
from autotune.knobs.space import Space
from autotune.tuning.state import RunState
from autotune.tuning.tools import Tools

MOST_FINALISTS = 4
"""Of each level."""
CLOSE, CLOSE_NOISE = 0.05, 1.5
"""An estimate may be the true best if it is within this share of the best estimate, or within this many standard
deviations of a trial."""
EQUAL = 0.99
"""Rates this close are the same within noise."""
LUCK = 0.5
"""Standard deviations of a trial by which the fastest of a few seems faster than it is."""

Rate = Callable[[Settings], float]


def near_best(state: RunState, spaces: Mapping[str, Space]) -> dict[str, list[Settings]]:
    """Return, for each level, settings that no lower level offers and that may be as fast as the best, oldest first."""
    margin = max(CLOSE, CLOSE_NOISE * state.noise)
    near = dict[str, list[Settings]]()
    lower = {state.baseline}
    for level, space in spaces.items():
        known = [settings for settings in state.estimates if settings in space]
        bar = max(map(state.estimate, known), default=0.0) * (1 - margin)
        near[level] = [settings for settings in known if settings not in lower and state.estimate(settings) >= bar]
        lower.update(known)
    return near


def finalists(state: RunState, tools: Tools) -> dict[str, list[Settings]]:
    """For each level that has any: what `near_best` names, best guess first."""
    found = dict[str, list[Settings]]()
    for level, near in near_best(state, tools.spaces).items():
        if near:
            ranked = tools.rank(state.history, tools.spaces[level], len(state.estimates))
            found[level] = [settings for settings in ranked if settings in near][:MOST_FINALISTS]
    return {level: settings for level, settings in found.items() if settings}


def leaders(state: RunState, ranked: Mapping[str, Sequence[Settings]], rate: Rate) -> dict[str, Settings]:
    """The best of each level at ``rate``, or the simplest that is as fast, if it improves on all levels below.

    Args:
        state: what is known.
        ranked: settings of each level, best first.
        rate: items per second, by trials or by a race.
    """
    best = {level: _simplest(state, settings, rate) for level, settings in ranked.items()}
    return improving(state, best, rate)


def _simplest(state: RunState, ranked: Sequence[Settings], rate: Rate) -> Settings:
    """The best, or one as fast that changes fewer knobs: what does not matter stays as the user has it."""
    equal = [settings for settings in ranked if rate(settings) >= EQUAL * rate(ranked[0])]
    return min(equal, key=lambda settings: len(settings.difference(state.baseline)), default=ranked[0])


def improving(state: RunState, best: Mapping[str, Settings], rate: Rate) -> dict[str, Settings]:
    """Without levels that are not clearly faster than all below them.

    The fastest of several seems faster by luck, and proving that it is not would take time from other levels.
    """
    kept: dict[str, Settings] = {}
    margin = 1 + LUCK * state.noise
    bar = margin * rate(state.baseline)
    for level, settings in best.items():
        if rate(settings) > bar:
            kept[level] = settings
            bar = margin * rate(settings)
    return kept
