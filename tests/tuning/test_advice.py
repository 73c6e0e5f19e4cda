"""What a longer budget would bring is said where it would bring something."""

from __future__ import annotations

import pytest

from autotune.stats.decide import BASELINE
from autotune.stats.proof import Round
from autotune.tuning.advice import advised
from autotune.tuning.result import proven_results
from tests.tuning.fakes import FakeBench, speeds
from tests.tuning.test_race import FINALISTS, searched


def notes(ratios: list[float]) -> str:
    bench = FakeBench(speeds({FINALISTS[0]: 1.2}))
    state, _ = searched(bench, {FINALISTS[0]: 1200.0})
    state.chosen = {"safe": FINALISTS[0]}
    state.rounds = [Round(number + 1, {BASELINE: 1.0, "safe": ratio}) for number, ratio in enumerate(ratios)]
    return advised(state, proven_results(state, ["safe"]), seconds=60.0)["safe"].note


@pytest.mark.parametrize(
    ("ratios", "words"),
    [([1.0, 1.3, 1.05, 1.25], "more would tell (--budget "), ([4.0, 2.0, 3.0, 2.5], "more would narrow it (--budget ")],
    ids=["open", "wide"],
)
def test_what_is_open_or_wide_has_a_price(ratios: list[float], words: str) -> None:
    assert words in notes(ratios)


@pytest.mark.parametrize("ratios", [[1.5] * 8, [0.9] * 8, [1.0, 3.0, 0.3, 1.1]], ids=["narrow", "slower", "hopeless"])
def test_nothing_is_offered_where_it_would_bring_nothing(ratios: list[float]) -> None:
    assert "more would" not in notes(ratios)
