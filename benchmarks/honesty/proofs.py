"""Proofs by the tuner's own `prove`, of generations that are given, and how often their answers are right. Pure."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from autotune.knobs.level import LEVELS
from autotune.knobs.settings import Settings
from autotune.search.sampler import searches_of
from autotune.stats.outcome import Crashed, Outcome
from autotune.stats.proof import ANALYSES, BASELINE, Proof, compare
from autotune.tuning import proof
from autotune.tuning.result import proven_answers
from autotune.tuning.state import RunState, Schedule


@dataclass(frozen=True)
class Turn:
    """One recorded or simulated round.

    Attributes:
        rates: items per second by contender.
        neighbours: processors that other processes kept busy meanwhile, on average.
    """

    rates: Mapping[str, float]
    neighbours: float = 0.0


Generation = Sequence[Turn]
"""Round by round; the proof may use fewer rounds than there are."""
NEEDED = max(ANALYSES)
"""Generations of the longest proof."""
RECORDED = 8
"""Generations of a proof that is drawn from a recording: what most budgets allow."""
START_SECONDS = 0.05
"""Of a forked contender: with it the schedule finds how many rounds are worth a start."""
BUDGET = 1e6
BASE = Settings()
STAND_INS = {level: Settings(threads=2 + number) for number, level in enumerate(LEVELS)}
"""Levels are decided between settings that differ."""


@dataclass(frozen=True)
class Answer:
    """What a whole proof says."""

    interval: Proof
    """Of the lowest level against the baseline."""
    claims: int
    """Levels for which a gain is claimed."""
    generations: int
    """At which it stopped."""

    def covers(self, ratio: float, most: float | None = None) -> bool:
        """Return True if the stated interval holds the true ``ratio``, or something up to ``most``."""
        return self.interval.low <= (most or ratio) and ratio <= self.interval.high


class Replayed:
    """See `autotune.trial.parent.trial_bench.TrialBench`: hands out recorded generations, one for each contest."""

    is_live = False

    def __init__(self, generations: Sequence[Generation], roles: Mapping[str, str]) -> None:
        self.left, self.roles = deque(generations), roles

    def clock(self) -> float:
        """Return the time: the budget ends with the last generation."""
        return 0.0 if self.left else 2 * BUDGET

    def measure(self, settings: Settings, give_up_below: float, deadline: float) -> Outcome:
        """There are no trials."""
        return Crashed("only proofs are replayed")

    @contextmanager
    def start_replicate(self, contenders: Mapping[str, Settings]) -> Iterator[Turns]:
        """Yield the next generation."""
        yield Turns(iter(self.left.popleft()), {role: self.roles[role] for role in contenders})


class Turns:
    """See `autotune.trial.parent.trial_bench.RunningReplicate`."""

    def __init__(self, turns: Iterator[Turn], roles: Mapping[str, str]) -> None:
        self.turns, self.roles, self.neighbours, self.cpu_wait = turns, roles, 0.0, 0.0

    def round(self, seconds: float) -> dict[str, float]:
        """Return the next recorded round; empty if no more were recorded."""
        turn = next(self.turns, Turn({}))
        self.neighbours = turn.neighbours
        return {role: turn.rates[name] for role, name in self.roles.items() if name in turn.rates}


def prove(generations: Sequence[Generation], roles: Mapping[str, str]) -> Answer:
    """Run the tuner's proof, up to the look that decides.

    Args:
        generations: in the order in which they are taken; the budget ends after the last.
        roles: ``"baseline"`` and levels -> the contender that stands for it.
    """
    levels = [level for level in LEVELS if level in roles]
    bench = Replayed(generations, roles)
    state = RunState(
        baseline=BASE,
        bench=bench,
        spaces={},
        schedule=Schedule(bench.clock, 0.0, BUDGET),
        new_search=searches_of(None, 0),
        start_seconds=START_SECONDS,
        chosen={level: STAND_INS[level] for level in levels},
    )
    state.estimates[BASE] = math.inf
    proof.prove(state)
    results = proven_answers(state, levels)
    claims = sum(result.proven and result.settings == STAND_INS[level] for level, result in results.items())
    return Answer(compare(state.rounds, levels[0], BASELINE), claims, state.replicates)


def summary(answers: Sequence[Answer], ratio: float = 1.0, most: float | None = None) -> dict[str, Any]:
    """Return the share of proofs that claim a gain, that of intervals that hold the true ``ratio`` (or something up to
    ``most``), and the median of their half-widths on the log scale."""
    return {
        "proofs": len(answers),
        "claims": round(statistics.mean(answer.claims > 0 for answer in answers), 4),
        "coverage": round(statistics.mean(answer.covers(ratio, most) for answer in answers), 4),
        "half_width": round(statistics.median(answer.interval.half_width for answer in answers), 3),
        "generations": round(statistics.mean(answer.generations for answer in answers), 1),
    }
