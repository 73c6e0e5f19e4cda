"""Other processes beside a run: which rounds decide."""

from __future__ import annotations

import pytest

from autotune.stats.load import undisturbed
from autotune.stats.proof import Round


def rounds(baseline: float, neighbours: float, replicates: range) -> list[Round]:
    """Four rounds of each replicate, in which ``safe`` makes 500 items/s beside any neighbour."""
    rates = {"baseline": baseline, "safe": 500.0}
    return [Round(number, rates, neighbours) for number in replicates for _ in range(4)]


QUIET_ROUNDS = rounds(400.0, 0.05, range(1, 4))


def test_a_baseline_that_collapsed_beside_a_neighbour_is_no_headline() -> None:
    kept, slower = undisturbed(QUIET_ROUNDS + rounds(25.0, 1.0, range(4, 6)))
    assert (kept, slower) == (QUIET_ROUNDS, pytest.approx(16.0))


@pytest.mark.parametrize(
    "others",
    [rounds(350.0, 1.0, range(4, 6)), rounds(25.0, 1.0, range(4, 5)), rounds(25.0, 0.3, range(4, 6)), []],
    ids=["nothing lost", "too few", "too little", "none"],
)
def test_otherwise_all_rounds_decide(others: list[Round]) -> None:
    assert undisturbed(QUIET_ROUNDS + others) == (QUIET_ROUNDS + others, None)


def test_a_load_that_never_ends_is_what_the_figures_hold_for() -> None:
    busy = rounds(25.0, 1.0, range(1, 4))
    assert undisturbed(busy) == (busy, None)
