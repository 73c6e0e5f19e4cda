"""The fixed list of cases: a seeded covering array. Every legal pair of values meets; rare values stay rare."""

import functools
import itertools
import random
from collections import Counter
from typing import Any

from tests.same_training.case import AXES, OWN_WORKERS, WORLDS, Case
from tests.same_training.legal import legal, refused_by_tuner

COUNTS = {"1": 1420, "gloo2": 360, "gloo3": 110, "mpi2": 120}
"""Cases of each world that are compared; more than 2,000 together. Those that the tuner refuses come on top."""
TRIES = 6
"""Candidates for each case, of which the one with the most pairs that were not met before is taken."""
REFUSED_SHARE = 0.15
"""How often several processes draw a loss that the tuner may refuse: nothing is compared then."""
SEED = 11
TOGETHER = ("world", "compile")
"""Axes whose values are dealt out by count or are dear: pairs with them are counted, but not sought."""


@functools.cache
def cases(world: str) -> tuple[Case, ...]:
    """The cases of one world, always the same."""
    source = random.Random(f"{SEED} {world}")
    met: set[tuple[Any, ...]] = set()
    chosen: dict[Case, None] = {}
    compared = 0
    while compared < COUNTS[world]:
        best = max((drawn(source, world) for _ in range(TRIES)), key=lambda case: len(pairs(case) - met) / cost(case))
        met |= pairs(best)
        compared += best not in chosen and refused_by_tuner(best) is None
        chosen[best] = None
    return tuple(chosen)


def drawn(source: random.Random, world: str) -> Case:
    """One random legal case."""
    values = {axis: source.choices(list(odds), list(odds.values()))[0] for axis, odds in AXES.items()}
    if world != "1" and source.random() > REFUSED_SHARE:
        values["loss"] = "sample_mean"
    return legal(Case(**values | {"world": world}))


def cost(case: Case) -> float:
    """About how long a case takes, as a multiple of the cheapest."""
    workers = case.num_workers > 0 or case.loader in OWN_WORKERS
    return 1 + 3 * workers + 2 * (case.threads > 1) + 0.5 * (case.checkpoint != "none")


def pairs(case: Case) -> set[tuple[Any, ...]]:
    """Every two values that meet in ``case``."""
    values = [(axis, value) for axis, value in vars(case).items() if axis not in TOGETHER]
    return set(itertools.combinations(values, 2))


def pairs_met() -> tuple[int, int]:
    """``(met, possible)``: pairs of values that meet in the array, of those that any legal case can hold."""
    met = set().union(*(pairs(case) for world in WORLDS for case in cases(world)))
    return len(met), len(met | _reachable())


def _reachable() -> set[tuple[Any, ...]]:
    source, found = random.Random(SEED), Counter[Any]()
    for number in range(6_000):
        found.update(pairs(drawn(source, list(WORLDS)[number % len(WORLDS)])))
    return set(found)
