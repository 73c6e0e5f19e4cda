"""Paired comparison of settings: interleaved rounds in, a ratio with an interval out.

Contenders are started together as one *generation* of fresh processes and take blocks in turn, so that drift and
neighbours hit all alike. A process's memory layout biases every block it runs, so the unit of evidence is the
generation, not the round: the interval is Student's over generation means, with a prior on their spread. It is looked
at after planned numbers of generations, early ones with little of the error, so that clear gains end soon and the
stated confidence holds for all looks together (Bonferroni; alpha spending: Lan & DeMets 1983).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

CONFIDENCE = 0.95
LOOKS: Mapping[int, float] = {3: 0.008, 5: 0.012, 9: 0.02}
"""Planned looks: generations, and the error that each look may spend. The last percent of the stated error is kept for
what the normal model does not know: bursts, and processes that differ much more than usual."""
PRIOR_SPREAD = 0.05
"""Usual standard deviation of the log ratio between two processes of the same settings, one generation to the next."""
PRIOR_GENERATIONS = 1
LIKELY = 0.02
"""A ratio may still grow by this much: what is further below a gain is given up early."""
MIN_GAIN = 1.01
"""A gain is claimed only where the lower bound is above this: one percent is within what layout luck gives."""


@dataclass(frozen=True)
class Round:
    """One turn of every contender within one generation of processes.

    Attributes:
        generation: its number.
        rates: items per second by contender.
        neighbours: processors that other processes kept busy meanwhile, on average.
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
    def undecided(self) -> bool:
        """True where more rounds may well turn the answer into a gain."""
        return self.low <= MIN_GAIN < min(self.high, self.value + LIKELY)


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
    by_generation: dict[int, list[float]] = {}
    for turn in rounds:
        ours, theirs = turn.rates.get(contender, 0.0), turn.rates.get(reference, 0.0)
        if ours > 0 and theirs > 0:
            by_generation.setdefault(turn.generation, []).append(math.log(ours / theirs))
    logs = list(by_generation.values())
    planned, left = _errors(len(logs))
    proof = _interval(logs, planned)
    still_open = proof.low <= MIN_GAIN and proof.high >= 1 / MIN_GAIN
    return _interval(logs, left) if final and still_open else proof


def _errors(generations: int) -> tuple[float, float]:
    """Error that a look after so many generations may spend: as planned, and where it is the last.

    Fewer than the first look's generations rest on the prior most, and never spend all.
    """
    planned = next((share for count, share in LOOKS.items() if generations <= count), LOOKS[max(LOOKS)])
    spent = sum(share for count, share in LOOKS.items() if count < min(generations, max(LOOKS)))
    left = sum(LOOKS.values()) - spent
    return planned, left / 2 if generations < min(LOOKS) else left


def _interval(generations: Sequence[Sequence[float]], error: float) -> Proof:
    """The ratio with its interval, from the log ratios of each generation's rounds."""
    count = sum(len(logs) for logs in generations)
    if not count:
        return Proof(value=1.0, low=0.0, high=math.inf, confidence=CONFIDENCE, rounds=0)
    means = [sum(logs) / len(logs) for logs in generations]
    centre = sum(means) / len(means)
    if len(means) < 2:
        return Proof(value=math.exp(centre), low=0.0, high=math.inf, confidence=CONFIDENCE, rounds=count)
    variance, df = _generation_variance(generations, means, centre)
    half = student_quantile(1 - error / 2, df) * math.sqrt(variance / len(means))
    return Proof(
        value=math.exp(centre),
        low=math.exp(centre - half),
        high=math.exp(centre + half),
        confidence=CONFIDENCE,
        rounds=count,
    )


def _generation_variance(
    generations: Sequence[Sequence[float]], means: Sequence[float], centre: float
) -> tuple[float, int]:
    """Variance of one generation's mean log ratio, and its degrees of freedom.

    The sample variance of few generations may be small by luck. What is known beforehand of processes of the same
    settings counts as `PRIOR_GENERATIONS` more (a scaled inverse chi-square prior), with the scatter of rounds, pooled
    within generations, on top.
    """
    within = [(value - mean) ** 2 for logs, mean in zip(generations, means, strict=True) for value in logs]
    spare = len(within) - len(means)
    rounds = sum(within) / spare if spare > 0 else 0.0
    prior = PRIOR_SPREAD**2 + rounds * len(means) / len(within)
    seen = sum((mean - centre) ** 2 for mean in means)
    df = PRIOR_GENERATIONS + len(means) - 1
    return (PRIOR_GENERATIONS * prior + seen) / df, df


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


@functools.cache
def student_quantile(probability: float, df: int) -> float:
    """Quantile of Student's t for ``probability`` in (0.5, 1) and integer ``df`` >= 1, by bisection."""
    low, high = 0.0, 1.0
    while student_cdf(high, df) < probability:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if student_cdf(middle, df) < probability else (low, middle)
    return (low + high) / 2


def student_cdf(t: float, df: int) -> float:
    """P(T <= t) for t >= 0 and integer df; Abramowitz & Stegun 26.7.3 and 26.7.4."""
    theta = math.atan(t / math.sqrt(df))
    sine, cosine = math.sin(theta), math.cos(theta)
    if df % 2:
        total, term = 0.0, cosine
        for k in range(1, df - 1, 2):
            total += term
            term *= cosine * cosine * (k + 1) / (k + 2)
        inside = 2 / math.pi * (theta + sine * total)
    else:
        total, term = 0.0, 1.0
        for k in range(0, df - 1, 2):
            total += term
            term *= cosine * cosine * (k + 1) / (k + 2)
        inside = sine * total
    return (1 + inside) / 2
