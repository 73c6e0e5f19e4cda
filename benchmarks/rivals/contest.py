"""The final measurement: everything that was recommended, in one run, by the same plain PyTorch code."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rivals.history import (
    SAME_QUALITY,
    Choice,
    Method,
    Point,
    Ratio,
    Rounds,
    ratio,
    thinned,
    time_to_quality,
)
from benchmarks.rivals.measuring import Failed, rate
from benchmarks.rivals.ours import NAME as OURS
from benchmarks.rivals.stage import changes

CHECKPOINTS = 8
"""Most points of one method's history that are measured."""


@dataclass(frozen=True)
class Row:
    """One method when its budget ended."""

    name: str
    level: str
    point: Point
    gain: Ratio | None
    """Against today's settings."""
    ahead: Ratio | None
    """autotune's same level against this."""
    note: str


def recommended(methods: Iterable[Method], budget: float) -> dict[Method, tuple[Point, ...]]:
    """The points of every method that are measured: at the budget, at its end, and some between."""
    found = {}
    for method in methods:
        points = {*thinned(method.timeline, CHECKPOINTS), method.at(budget)}
        found[method] = tuple(sorted(points, key=lambda point: point.seconds))
    return found


def distinct(current: Choice, points: Iterable[tuple[Point, ...]]) -> list[Choice]:
    """Every choice once, today's first."""
    return list(dict.fromkeys([current, *(point.choice for each in points for point in each)]))


def measured(
    task: Path, choices: list[Choice], rounds: int, seconds: float, seed: int
) -> Iterator[dict[Choice, float]]:
    """Fresh processes for each choice, round after round, each in a random order of its own."""
    order = random.Random(seed)
    for number in range(rounds):
        turn = {}
        for choice in order.sample(choices, len(choices)):
            try:
                turn[choice] = rate(task, choice.settings.as_dict(), seconds, choice.launcher)
            except Failed as error:
                print(f"  {changes(choice.settings, choices[0].settings)}: {error}", file=sys.stderr)
        print(f"  round {number + 1} of {rounds}: {len(turn)} settings", file=sys.stderr)
        yield turn


def rows(methods: Iterable[Method], current: Choice, budget: float, rounds: Rounds) -> list[Row]:
    """What every method had reached at the budget."""
    methods = list(methods)
    ours = {method.level: method.timeline[-1].choice for method in methods if is_ours(method)}
    found = []
    for method in methods:
        point = method.timeline[-1] if is_ours(method) else method.at(budget)
        gain = ratio(rounds, point.choice, current)
        own = ours.get(method.level)
        ahead = ratio(rounds, own, point.choice) if own and not is_ours(method) else None
        found.append(Row(method.name, method.level, point, gain, ahead, method.note))
    return found


def is_ours(method: Method) -> bool:
    """True for autotune's levels."""
    return method.name.startswith(OURS)


def sooner(method: Method, points: tuple[Point, ...], ours: Method, rounds: Rounds) -> str:
    """One line: when ``method`` was as good as ``ours``."""
    took, goal = ours.timeline[-1].seconds, ours.timeline[-1].choice
    if goal == ours.timeline[0].choice:
        return f"{method.name} at level {method.level}: autotune kept today's settings, there is nothing to reach"
    reached = time_to_quality(points, goal, rounds)
    start = f"{method.name} at level {method.level}: {SAME_QUALITY:.0%} of what autotune found in {took:.0f} s"
    if reached is None:
        return f"{start} was not reached within {method.budget:.0f} s (over {method.budget / took:.1f} times as long)"
    return f"{start} was reached after {reached:.0f} s ({reached / took:.1f} times as long)"


def table(rows: Iterable[Row], current: Choice) -> str:
    """Markdown for people, columns aligned."""
    head = ("method", "may change", "after", "against today's", "autotune's gain over it", "settings")
    lines = [head, *(_cells(row, current) for row in rows)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(head))]
    rule = tuple("-" * width for width in widths)
    padded = ("| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in (head, rule, *lines[1:]))
    return "\n".join(padded)


def _cells(row: Row, current: Choice) -> tuple[str, ...]:
    settings = changes(row.point.choice.settings, current.settings)
    started = " (through run_cpu)" if row.point.choice.launcher == "run_cpu" else ""
    gain = str(row.gain or "failed")
    ahead = str(row.ahead or "")
    return row.name, row.level, f"{row.point.seconds:.0f} s", gain, ahead, settings + started
