"""Faster is one question, how much is another: the interval also ends where the sign test says so."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import pytest

from autotune.stats.proof import ANALYSES, BASELINE, MIN_GAIN, Round, compare


def rounds(logs: Sequence[float]) -> list[Round]:
    """One round a replicate, of so many log ratios."""
    return [Round(number, {"safe": math.exp(log), BASELINE: 1.0}) for number, log in enumerate(logs)]


def spread(count: int) -> list[float]:
    """Always faster, by 5 % most times and by ten times now and then."""
    return [2.3 if number % 6 == 0 else 0.05 + 0.001 * number for number in range(count)]


@pytest.mark.parametrize(("replicates", "gain"), [(10, False), (12, True), (14, True), (24, True)])
def test_a_dozen_replicates_that_are_all_faster_are_faster(replicates: int, gain: bool) -> None:
    proof = compare(rounds(spread(replicates)), "safe", BASELINE)
    assert proof.gain is gain
    assert proof.low <= proof.value <= proof.high


def test_a_slower_one_among_a_dozen_leaves_the_question_open() -> None:
    assert not compare(rounds([*spread(11), -0.01]), "safe", BASELINE).gain


def test_of_two_dozen_a_few_may_be_slower() -> None:
    logs = [*spread(21), -0.01, -0.02, -0.03]
    assert compare(rounds(logs), "safe", BASELINE).gain
    assert not compare(rounds([*logs[:20], -0.01, -0.02, -0.03, -0.04]), "safe", BASELINE).gain


def _claims(draw: Callable[[random.Random], float], runs: int) -> float:
    """Share of proofs that claim a gain, with all interim analyses."""
    source, claims = random.Random(5), 0
    for _ in range(runs):
        logs = [draw(source) for _ in range(max(ANALYSES))]
        proofs = [compare(rounds(logs[:count]), "safe", BASELINE, final=count == max(ANALYSES)) for count in ANALYSES]
        claims += any(proof.gain for proof in proofs)
    return claims / runs


@pytest.mark.parametrize(
    "draw",
    [
        lambda source: source.gauss(0, 0.05),
        lambda source: source.choice((-1, 1)) * source.expovariate(4),
        lambda source: max(-3.0, min(3.0, 0.05 * math.tan(math.pi * (source.random() - 0.5)))),
    ],
    ids=["normal", "Laplace", "nearly Cauchy"],
)
def test_settings_against_themselves_are_seldom_called_faster(draw: Callable[[random.Random], float]) -> None:
    assert math.log(MIN_GAIN) > 0
    assert _claims(draw, 400) <= 0.02
