"""Proofs of settings against themselves, drawn from recorded generations. Pure.

Contenders of one recording are interchangeable, and so is what is asked of them: every window of generations and every
order of contenders is a comparison. They share generations, so that many of them are worth less than as many
recordings: `apart` says how many share nothing.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autotune.knobs.level import LEVELS, LOWEST
from autotune.stats.proof import BASELINE
from benchmarks.honesty.proofs import RECORDED, Answer, Generation, prove, summary

NAMES = ("a", "b", "c", "d")
"""The contenders of every recorded generation; all of them run the baseline's settings."""
Recording = Mapping[str, Sequence[Generation]]
"""Generations by load, in the order in which they were recorded."""
Picked = tuple[tuple[str, int], ...]
"""Which generations make up one proof: load and position."""
ATTEMPTS = 50
"""Draws for each comparison that is wanted, since some are drawn twice."""


def in_order(recording: Recording, load: str, dice: random.Random) -> Picked:
    """Pick consecutive generations: what a proof at that time would have met."""
    first = dice.randrange(len(recording[load]) - RECORDED + 1)
    return tuple((load, first + step) for step in range(RECORDED))


def any_order(recording: Recording, load: str, dice: random.Random) -> Picked:
    """Pick any generations of one load."""
    return tuple((load, position) for position in dice.sample(range(len(recording[load])), RECORDED))


def mixed(recording: Recording, dice: random.Random) -> Picked:
    """Pick consecutive generations of one load, then of another: it changes in the middle of the proof."""
    before, after = dice.sample(sorted(load for load in recording if len(recording[load]) >= RECORDED), 2)
    change = dice.randrange(1, RECORDED)
    return in_order(recording, before, dice)[:change] + in_order(recording, after, dice)[change:]


def rows(recording: Recording, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return figures for every load, in order and in any order, and for mixed ones."""
    whole = {load: list(found) for load, found in recording.items() if len(found) >= RECORDED}
    found = []
    for load in whole:
        for order, pick in (("recorded", in_order), ("any", any_order)):
            draw = _bound(pick, whole, load)
            found.append(_row(whole, load, order, draw, count, seed) | {"apart": apart(len(whole[load]))})
    if len(whole) > 1:
        total = sum(apart(len(generations)) for generations in whole.values())
        draw = _bound(mixed, whole)
        found.append(_row(whole, "mixed", "recorded", draw, count, seed) | {"apart": total})
    return found


def apart(generations: int) -> int:
    """Count the comparisons of pairs that share neither a generation nor a process."""
    return generations // RECORDED * (len(NAMES) // 2)


def compared(
    recording: Recording, draw: Callable[[random.Random], Picked], count: int, levels: Sequence[str], seed: int
) -> list[Answer]:
    """Return the answers of up to ``count`` distinct proofs of ``levels``, each with its own contenders."""
    dice = random.Random(seed)
    seen: dict[tuple[Picked, tuple[str, ...]], Answer] = {}
    orders = list(itertools.permutations(NAMES, 1 + len(levels)))
    for _ in range(count * ATTEMPTS):
        if len(seen) == count:
            break
        drawn = draw(dice), dice.choice(orders)
        if drawn not in seen:
            generations = [recording[load][position] for load, position in drawn[0]]
            seen[drawn] = prove(generations, dict(zip((BASELINE, *levels), drawn[1], strict=True)))
    return list(seen.values())


def _row(
    recording: Recording, load: str, order: str, draw: Callable[[random.Random], Picked], count: int, seed: int
) -> dict[str, Any]:
    """Return figures of pairs; ``claims_3_levels`` is of proofs whose three contenders may each be claimed a gain."""
    pairs = compared(recording, draw, count, (LOWEST,), seed)
    wholes = compared(recording, draw, count, tuple(LEVELS), seed)
    three = summary(wholes)["claims"]
    return {"load": load, "order": order, **summary(pairs), "claims_3_levels": three}


def _bound(pick: Callable[..., Picked], *arguments: Any) -> Callable[[random.Random], Picked]:
    return lambda dice: pick(*arguments, dice)
