"""Verdicts of a check."""

from __future__ import annotations

import pytest

from autotune.report.profile import CHECKED, checked
from autotune.stats.proof import Proof
from autotune.tuning.check import EXIT_CODES, CheckResult, Claim

HOLDS, FAILS, OPEN = Claim


def proof(low: float, high: float) -> Proof:
    """An interval of a ratio."""
    return Proof(low, low, high, 0.95, 8)


@pytest.mark.parametrize(
    ("claimed", "measured", "verdict"),
    [
        ((1.4, 1.6), (1.35, 1.7), HOLDS),
        ((1.4, 1.6), (1.0, 1.39), FAILS),
        ((1.4, 1.6), (1.0, 1.5), OPEN),
        ((2.0, 9.0), (0.37, 184.61), OPEN),
        ((0.97, 1.1), (0.98, 1.1), HOLDS),
        ((0.97, 1.1), (0.8, 1.1), OPEN),
    ],
)
def test_an_interval_that_holds_and_does_not_is_inconclusive(
    claimed: tuple[float, float], measured: tuple[float, float], verdict: Claim
) -> None:
    result = CheckResult("amp", proof(*claimed), proof(*measured))
    assert result.verdict == verdict
    assert checked(result).endswith(CHECKED[verdict.value])


def test_every_verdict_has_its_exit_code() -> None:
    assert EXIT_CODES == {HOLDS: 0, FAILS: 4, OPEN: 5}
