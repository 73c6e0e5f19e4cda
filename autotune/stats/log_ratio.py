"""The log ratio of two candidates, from rounds grouped by replicate, with two errors kept apart.

The luck of a process belongs to all rounds of a replicate, and is averaged over replicates only. What other processes
take hits single rounds, by any amount, but it hits either candidate as likely, since we drew their order. So a round
beside a neighbour moves the result by no more than a limit (Huber's location). A quiet round counts in full: there a
stall is the training's own. The variance is that of the replicates' scores (a cluster-robust variance), so it
holds whatever the rounds of a replicate share.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

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
class Sample:
    """Log ratio of one round.

    Attributes:
        log: of the two rates.
        beside: whether other processes ran meanwhile.
    """

    log: float
    beside: bool = False


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
        """Number of replicates."""
        return len(self.means)

    @property
    def error(self) -> float:
        """Standard error of ``centre``."""
        return float((self.variance / self.replicates) ** 0.5)


def estimate(replicates: Sequence[Sequence[Sample]]) -> Estimate:
    """Return the log ratio by at least one replicate of at least one round each.

    Few replicates may agree by luck. So what is known beforehand of processes of the same settings counts as
    `PRIOR_REPLICATES` more (a scaled inverse chi-square prior), with the scatter of rounds, pooled within replicates,
    on top.
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
