"""Paired comparison of settings: interleaved rounds in, a ratio with an interval out.

Contenders are started together as one *generation* of fresh processes and take blocks in turn, so that drift and
neighbours hit all alike. A process's memory layout biases every block it runs, so the unit of evidence is the
generation, not the round (`autotune.stats.log_ratio`). The interval is looked at after planned numbers of generations,
early ones with little of the error, so that clear gains end soon and the stated confidence holds for all looks together
(Bonferroni; alpha spending: Lan & DeMets 1983).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from autotune.stats.log_ratio import Estimate, Sample, estimate
from autotune.stats.student import student_quantile

CONFIDENCE = 0.95
LOWER_ERROR, UPPER_ERROR = 0.009, 0.027
"""Probability that the truth is below the interval, and above it. A claim rests on the lower end. What is left
of the stated error is kept for processes that differ much more than usual."""
LOOKS: Mapping[int, float] = {4: 0.1, 8: 0.25, 14: 0.3, 24: 0.35}
"""Planned looks: generations, and the share of the error that each look may spend."""
FULL_GENERATIONS = 12
"""Fewer rest on the prior so much that the last look may spend only a part of the error that is left."""
QUIET_CPUS = 0.2
"""A round is quiet up to so many processors that others keep busy."""
NARROW = 0.06
"""An interval is narrow if its half-width is no more..."""
WIDE = 0.25
"""...and wide from here on: its lower end then says more than its middle. Both on the log scale."""
LIKELY, LIKELY_SHARE = 0.02, 0.25
"""A ratio may still grow by this much, or by this share of its half-width: what is further below a gain is given up."""
MIN_GAIN = 1.01
"""A gain is claimed only where the lower bound is above this: one percent is within what layout luck gives."""


@dataclass(frozen=True)
class Round:
    """One turn of every contender within one generation of processes.

    Attributes:
        generation: its number.
        rates: items per second by contender.
        neighbours: processors that other processes and the hypervisor's other guests kept busy meanwhile, on average.
    """

    generation: int
    rates: Mapping[str, float]
    neighbours: float = 0.0


@dataclass(frozen=True)
class Proof:
    """Speed of one settings relative to another: ``value`` times as fast, between ``low`` and ``high``."""

    value: float
    low: float
    high: float
    confidence: float
    rounds: int

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as profiles store it."""
        return asdict(self)

    @property
    def gain(self) -> bool:
        """True where the whole interval is a gain worth claiming."""
        return self.low > MIN_GAIN

    @property
    def half_width(self) -> float:
        """Of the interval, on the log scale: 0.06 is 6 % either way."""
        return math.log(self.high / self.low) / 2 if self.low > 0 else math.inf

    @property
    def narrow(self) -> bool:
        """True where a narrower interval would hardly be of use."""
        return self.half_width <= NARROW

    @property
    def undecided(self) -> bool:
        """True where more rounds may well turn the answer into a gain."""
        likely = self.value * math.exp(max(LIKELY, LIKELY_SHARE * self.half_width))
        return self.low <= MIN_GAIN < min(self.high, likely)


IDENTITY = Proof(value=1.0, low=1.0, high=1.0, confidence=CONFIDENCE, rounds=0)
"""The same settings against themselves: nothing to measure."""


def compare(rounds: Sequence[Round], contender: str, reference: str, *, final: bool = True) -> Proof:
    """How much faster ``contender`` is than ``reference``, from the rounds in which both ran.

    With a single generation the interval is unbounded (0 to infinity): one pair of processes proves nothing.

    Args:
        rounds: all rounds so far.
        contender: its name in the rounds.
        reference: the name of what it is compared with.
        final: no further look will be taken, so that what is still open may spend all of the error that is left.
    """
    found = measured(rounds, contender, reference)
    if found is None:
        return Proof(value=1.0, low=0.0, high=math.inf, confidence=CONFIDENCE, rounds=0)
    planned, left = _shares(found.generations)
    proof = _interval(found, planned)
    decided = proof.low > MIN_GAIN or proof.high < 1 / MIN_GAIN
    ended_by_look = decided and found.generations in LOOKS
    return _interval(found, left) if final and not ended_by_look else proof


def measured(rounds: Sequence[Round], contender: str, reference: str) -> Estimate | None:
    """The log ratio of two contenders; None where no round has both."""
    generations = _paired(rounds, contender, reference)
    return estimate(generations) if generations else None


def _paired(rounds: Sequence[Round], contender: str, reference: str) -> list[list[Sample]]:
    """The log ratios of rounds in which both ran, by generation."""
    found: dict[int, list[Sample]] = {}
    for turn in rounds:
        ours, theirs = turn.rates.get(contender, 0.0), turn.rates.get(reference, 0.0)
        if ours > 0 and theirs > 0:
            sample = Sample(math.log(ours / theirs), beside=turn.neighbours > QUIET_CPUS)
            found.setdefault(turn.generation, []).append(sample)
    return list(found.values())


def _shares(generations: int) -> tuple[float, float]:
    """Share of the error that a look after so many generations may spend: as planned, and where it is the last."""
    planned = next((share for count, share in LOOKS.items() if generations <= count), LOOKS[max(LOOKS)])
    spent = sum(share for count, share in LOOKS.items() if count < min(generations, max(LOOKS)))
    return planned, max(planned, (1.0 - spent) * min(1.0, generations / FULL_GENERATIONS))


def _interval(found: Estimate, share: float) -> Proof:
    """The ratio with the interval that spends ``share`` of the error; unbounded for a single generation."""
    low, high = 0.0, math.inf
    if found.generations > 1:
        low = math.exp(found.centre - student_quantile(1 - share * LOWER_ERROR, found.df) * found.error)
        high = math.exp(found.centre + student_quantile(1 - share * UPPER_ERROR, found.df) * found.error)
    return Proof(math.exp(found.centre), low, high, CONFIDENCE, found.rounds)


def round_variance(rounds: Sequence[Round]) -> float | None:
    """Variance of a contender's log rate between the rounds of one generation; None where no generation has two.

    What all contenders of a round share (the machine's speed at that time) is taken out.
    """
    by_generation: dict[tuple[int, frozenset[str]], list[Mapping[str, float]]] = {}
    for turn in rounds:
        rates = {name: math.log(rate) for name, rate in turn.rates.items() if rate > 0}
        by_generation.setdefault((turn.generation, frozenset(rates)), []).append(rates)
    total, spare = 0.0, 0
    for (_, names), turns in by_generation.items():
        if len(turns) < 2 or len(names) < 2:
            continue
        shared = [sum(turn.values()) / len(names) for turn in turns]
        for name in names:
            logs = [turn[name] - common for turn, common in zip(turns, shared, strict=True)]
            mean = sum(logs) / len(logs)
            total += sum((value - mean) ** 2 for value in logs)
        spare += (len(turns) - 1) * (len(names) - 1)
    return total / spare if spare else None
