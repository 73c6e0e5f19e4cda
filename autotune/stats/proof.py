"""Paired comparison of settings: interleaved rounds in, a ratio with an interval out.

Candidates are started together as one *replicate* of fresh processes and take blocks in turn, so that drift and
neighbours affect all alike. A process's memory layout biases every block it runs, so the unit of evidence is the
replicate, not the round. Interim analyses come after planned numbers of replicates. Early ones spend little of the
error, so clear gains are found soon, and the stated confidence holds for all analyses together (Bonferroni; alpha
spending: Lan & DeMets 1983).

Whether settings are faster is another question than how much: if each of a dozen replicates is faster, they are,
however far their ratios scatter. So the interval ends at the nearer of two bounds: that of Student's t, and that of the
sign test, which is an order statistic of the replicates (Conover, Practical Nonparametric Statistics, 3.2).

Chance differences between processes affect all rounds of a replicate, and only replicates average them out. What
other processes take hits single rounds, by any amount, but either candidate alike, since their order is random. So a
round beside a neighbour moves the result by no more than a limit (Huber's location). A quiet round counts in full:
there a stall is the training's own. The variance is that of the replicates' scores (a cluster-robust variance), so
it holds whatever the rounds of a replicate share.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

BASELINE = "baseline"
"""Name of the user's settings in rounds."""
CONFIDENCE = 0.95
LOWER_ERROR, UPPER_ERROR = 0.009, 0.027
"""Probability that the truth is below the interval, and above it. A claim rests on the lower end. What is left
of the stated error is kept for processes that differ much more than usual."""
SIGN_ERROR = 0.0005
"""Probability, at one analysis and to either side, that the truth is beyond the interval by the sign test. It decides
from 11 replicates on, at two analyses at most."""
ANALYSES: Mapping[int, float] = {4: 0.1, 8: 0.25, 14: 0.3, 24: 0.35}
"""Planned interim analyses: replicates, and the share of the error that each analysis may spend."""
FULL_REPLICATES = 12
"""Fewer rest on the prior so much that the last analysis may spend only a part of the error that is left."""
QUIET_CPUS = 0.2
"""A round is quiet up to so many processors that others keep busy."""
NARROW = 0.06
"""An interval is narrow if its half-width is no more..."""
WIDE = 0.25
"""...and wide from here on: its lower end is then worth more than its middle. Both on the log scale."""
LIKELY, LIKELY_SHARE = 0.02, 0.25
"""A ratio may still grow by this much, or by this share of its half-width: what is further below a gain is given up."""
MIN_GAIN = 1.01
"""A gain is claimed only if the lower bound is above this: memory layout alone can bring one percent."""
MOST_SPEEDUP = 1000.0
"""No proven speedup is larger: larger figures come from the load of another process, or are invented."""
FUTURE_SHARE = 0.5
"""Of the error, that an analysis in the future may spend, roughly."""
MOST_REPLICATES = 200
PRIOR_SPREAD = 0.05
"""Usual standard deviation of the log ratio between two processes of the same settings, one replicate to the next."""
PRIOR_REPLICATES = 1
LIMIT = 1.5
"""A round beside a neighbour counts up to this many standard deviations. Huber: at 1.5, 4 % more variance if all is
normal."""
LEAST_DEVIATION = 0.03
CLEAN = 1 / 3
"""Share of the rounds, at least, that no burst made unfair: what these scatter by is the scale of the limit."""
NORMAL = statistics.NormalDist().inv_cdf((1 + CLEAN) / 2)
"""Distance from the middle of a normal distribution, in standard deviations, within which that share lies."""


@dataclass(frozen=True)
class Round:
    """One turn of every candidate within one replicate of processes.

    Attributes:
        replicate: its number.
        rates: items per second by candidate.
        neighbours: processors that other processes and the hypervisor's other guests kept busy meanwhile, on average.
    """

    replicate: int
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

    @property
    def gain(self) -> bool:
        """Return True if the whole interval is a gain worth claiming."""
        return self.low > MIN_GAIN

    @property
    def half_width(self) -> float:
        """Return half of the interval, on the log scale: 0.06 is 6 % either way."""
        return math.log(self.high / self.low) / 2 if self.low > 0 else math.inf

    @property
    def narrow(self) -> bool:
        """Return True if a narrower interval would hardly be of use."""
        return self.half_width <= NARROW

    @property
    def undecided(self) -> bool:
        """Return True if more rounds may well turn the answer into a gain."""
        likely = self.value * math.exp(max(LIKELY, LIKELY_SHARE * self.half_width))
        return self.low <= MIN_GAIN < min(self.high, likely)


IDENTITY = Proof(value=1.0, low=1.0, high=1.0, confidence=CONFIDENCE, rounds=0)
"""The same settings against themselves: nothing to measure."""


def compare(rounds: Sequence[Round], candidate: str, reference: str, *, final: bool = True) -> Proof:
    """Return how much faster ``candidate`` is than ``reference``, from the rounds in which both ran.

    With a single replicate the interval is unbounded (0 to infinity): one pair of processes proves nothing.

    Args:
        rounds: all rounds so far.
        candidate: its name in the rounds.
        reference: the name of what it is compared with.
        final: no further analysis will follow, so that what is still open may spend all of the error that is left.
    """
    found = measured(rounds, candidate, reference)
    if found is None:
        return Proof(value=1.0, low=0.0, high=math.inf, confidence=CONFIDENCE, rounds=0)
    planned, left = _shares(found.replicates)
    proof = _interval(found, planned)
    decided = proof.low > MIN_GAIN or proof.high < 1 / MIN_GAIN
    ended_by_analysis = decided and found.replicates in ANALYSES
    return _interval(found, left) if final and not ended_by_analysis else proof


def measured(rounds: Sequence[Round], candidate: str, reference: str) -> Estimate | None:
    """Return the log ratio of two candidates, from rounds in which both ran; None if there is none."""
    replicates: dict[int, list[Sample]] = {}
    for turn in rounds:
        ours, theirs = turn.rates.get(candidate, 0.0), turn.rates.get(reference, 0.0)
        if ours > 0 and theirs > 0:
            sample = Sample(math.log(ours / theirs), beside=turn.neighbours > QUIET_CPUS)
            replicates.setdefault(turn.replicate, []).append(sample)
    return estimate(list(replicates.values())) if replicates else None


def _shares(replicates: int) -> tuple[float, float]:
    """Return the share of the error that an analysis after so many replicates may spend: planned, and as the last."""
    planned = next((share for count, share in ANALYSES.items() if replicates <= count), ANALYSES[max(ANALYSES)])
    spent = sum(share for count, share in ANALYSES.items() if count < min(replicates, max(ANALYSES)))
    return planned, max(planned, (1.0 - spent) * min(1.0, replicates / FULL_REPLICATES))


def _interval(found: Estimate, share: float) -> Proof:
    """Return the ratio with the interval that spends ``share`` of the error; unbounded for a single replicate."""
    low, high = 0.0, math.inf
    if found.replicates > 1:
        low = math.exp(found.centre - student_quantile(1 - share * LOWER_ERROR, found.df) * found.error)
        high = math.exp(found.centre + student_quantile(1 - share * UPPER_ERROR, found.df) * found.error)
    if (beyond := _by_luck(found.replicates)) is not None:
        low = max(low, min(math.exp(found.means[beyond]), math.exp(found.centre)))
        high = min(high, max(math.exp(found.means[-1 - beyond]), math.exp(found.centre)))
    return Proof(math.exp(found.centre), low, high, CONFIDENCE, found.rounds)


@functools.cache
def _by_luck(replicates: int) -> int | None:
    """Return how many of ``replicates`` may lie on the other side of the truth by chance; None if all of them may."""
    total, beyond = 0.0, None
    for count in range(replicates):
        total += math.comb(replicates, count) / 2**replicates
        if total > SIGN_ERROR:
            break
        beyond = count
    return beyond


def round_variance(rounds: Sequence[Round]) -> float | None:
    """Return the variance of a candidate's log rate between the rounds of one replicate; None if no replicate has two.

    What all candidates of a round share (the machine's speed at that time) is taken out.
    """
    by_replicate: dict[tuple[int, tuple[str, ...]], list[Mapping[str, float]]] = {}
    for turn in rounds:
        logs = {name: math.log(rate) for name, rate in turn.rates.items() if rate > 0}
        by_replicate.setdefault((turn.replicate, tuple(sorted(logs))), []).append(logs)
    scores: list[list[float]] = []
    for (_, names), turns in by_replicate.items():
        if len(turns) > 1 and len(names) > 1:
            left = math.sqrt((len(names) - 1) / len(names))  # of a candidate's scatter, without what all share
            shared = [statistics.fmean(turn.values()) for turn in turns]
            scores += [[(turn[name] - mean) / left for turn, mean in zip(turns, shared, strict=True)] for name in names]
    return _within(scores) if scores else None


def typical_rate(rounds: Sequence[Round], name: str) -> float:
    """Return the geometric mean of a candidate's rates: the ratio of two of them is the proof's value."""
    logs = [math.log(turn.rates[name]) for turn in rounds if turn.rates.get(name, 0.0) > 0]
    return math.exp(sum(logs) / len(logs)) if logs else 0.0


def to_decide(rounds: Sequence[Round], candidate: str, reference: str) -> int | None:
    """Return the replicates after which a gain would be claimed if the ratio stays as it is; None if hardly ever."""
    found = measured(rounds, candidate, reference)
    if found is None:
        return None
    distance = found.centre - math.log(MIN_GAIN)
    deviation = math.sqrt(found.variance)
    always = found.means[0] > math.log(MIN_GAIN)

    def decided(count: int) -> bool:
        reach = student_quantile(1 - FUTURE_SHARE * LOWER_ERROR, count) / math.sqrt(count)
        return reach * deviation <= distance or (always and _by_luck(count) is not None)

    after = max(found.replicates + 1, min(ANALYSES))  # a single replicate does not show its scatter
    return next((count for count in range(after, MOST_REPLICATES) if decided(count)), None)


# The log ratio, with two errors kept apart ----------------------------------------------------------------------------


class Sample(NamedTuple):
    """Log ratio of one round."""

    log: float
    beside: bool = False
    """True if other processes ran meanwhile."""


@dataclass(frozen=True)
class Estimate:
    """A log ratio.

    Attributes:
        centre: its estimate.
        variance: of one replicate's part in it.
        df: degrees of freedom of ``variance``.
        means: what each replicate measured, ascending.
        rounds: how many there are.
    """

    centre: float
    variance: float
    df: int
    means: tuple[float, ...]
    rounds: int

    @property
    def replicates(self) -> int:
        """Return the number of replicates."""
        return len(self.means)

    @property
    def error(self) -> float:
        """Return the standard error of ``centre``."""
        return float((self.variance / self.replicates) ** 0.5)


def estimate(replicates: Sequence[Sequence[Sample]]) -> Estimate:
    """Return the log ratio by at least one replicate of at least one round each.

    Few replicates may agree by chance. So the usual spread between processes of the same settings counts as
    `PRIOR_REPLICATES` more (a scaled inverse chi-square prior). The scatter of rounds, pooled within replicates, is
    added.
    """
    limit = _limit(replicates)
    centre = _centre(replicates, limit)
    slope = statistics.mean(_slope(samples, centre, limit) for samples in replicates) or 1.0
    scores = [[_clipped(sample, centre, limit) / slope for sample in samples] for samples in replicates]
    count = len(scores)
    rounds = sum(map(len, scores))
    seen = sum(statistics.fmean(each) ** 2 for each in scores)
    prior = PRIOR_SPREAD**2 + _within(scores) * count / rounds
    df = PRIOR_REPLICATES + count - 1
    means = tuple(sorted(statistics.fmean(sample.log for sample in samples) for samples in replicates))
    return Estimate(centre, (PRIOR_REPLICATES * prior + seen) / df, df, means, rounds)


def _limit(replicates: Sequence[Sequence[Sample]]) -> float:
    """Return how far from the centre a round beside a neighbour counts in full."""
    logs = [sample.log for samples in replicates for sample in samples]
    middle = statistics.median(logs)
    distances = sorted(abs(log - middle) for log in logs)
    return LIMIT * max(distances[math.ceil(CLEAN * len(logs)) - 1] / NORMAL, LEAST_DEVIATION)


def _centre(replicates: Sequence[Sequence[Sample]], limit: float, steps: int = 50) -> float:
    """Find where the replicates' mean scores add up to nothing, by Newton's method: one step if nothing is clipped."""
    centre = statistics.median(sample.log for samples in replicates for sample in samples)
    for _ in range(steps):
        score = sum(statistics.fmean(_clipped(each, centre, limit) for each in samples) for samples in replicates)
        slope = sum(_slope(samples, centre, limit) for samples in replicates)
        if not slope or abs(score) < 1e-12:
            break
        centre += score / slope
    return centre


def _clipped(sample: Sample, centre: float, limit: float) -> float:
    distance = sample.log - centre
    return max(-limit, min(limit, distance)) if sample.beside else distance


def _slope(samples: Sequence[Sample], centre: float, limit: float) -> float:
    """Return the share of the samples that count in full."""
    return statistics.fmean(not sample.beside or abs(sample.log - centre) < limit for sample in samples)


def _within(scores: Sequence[Sequence[float]]) -> float:
    """Return the variance between the rounds of a replicate, pooled; 0 if each has one."""
    spare = sum(map(len, scores)) - len(scores)
    squares = sum((each - statistics.fmean(rounds)) ** 2 for rounds in scores for each in rounds)
    return squares / spare if spare else 0.0


# Student's t ----------------------------------------------------------------------------------------------------------


@functools.cache
def student_quantile(probability: float, df: int) -> float:
    """Return the quantile of Student's t for ``probability`` in (0.5, 1) and integer ``df`` >= 1, by bisection."""
    low, high = 0.0, 1.0
    while student_cdf(high, df) < probability:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if student_cdf(middle, df) < probability else (low, middle)
    return (low + high) / 2


def student_cdf(t: float, df: int) -> float:
    """Return P(T <= t) for t >= 0 and integer df; Abramowitz & Stegun 26.7.3 and 26.7.4."""
    theta = math.atan(t / math.sqrt(df))
    sine, cosine = math.sin(theta), math.cos(theta)
    odd = df % 2
    total, term = 0.0, cosine if odd else 1.0
    for k in range(odd, df - 1, 2):
        total += term
        term *= cosine * cosine * (k + 1) / (k + 2)
    inside = 2 / math.pi * (theta + sine * total) if odd else sine * total
    return (1 + inside) / 2
