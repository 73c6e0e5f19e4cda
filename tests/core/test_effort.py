"""How many generations an answer takes, against the answer itself."""

from __future__ import annotations

from autotune.stats.effort import to_decide, to_narrow
from autotune.stats.proof import LOOKS, NARROW, Round, compare


def rounds(ratios: list[float]) -> list[Round]:
    return [Round(number, {"ours": ratio, "theirs": 1.0}) for number, ratio in enumerate(ratios)]


UNSURE = [1.0, 1.3, 1.05, 1.25]


def test_a_gain_within_the_noise_is_told_by_more_generations() -> None:
    wanted = to_decide(rounds(UNSURE), "ours", "theirs")
    assert not compare(rounds(UNSURE), "ours", "theirs").gain
    assert wanted is not None
    assert len(UNSURE) < wanted < 60
    assert compare(rounds(UNSURE * (wanted // len(UNSURE) + 1)), "ours", "theirs").gain


def test_no_gain_takes_for_ever() -> None:
    assert to_decide(rounds([1.0, 1.05, 0.95]), "ours", "theirs") is None
    assert to_decide([], "ours", "theirs") is to_narrow([], "ours", "theirs") is None


def test_a_single_generation_is_followed_up_to_the_first_look() -> None:
    assert to_decide(rounds([9.0]), "ours", "theirs") == min(LOOKS)


def test_a_wide_interval_gets_narrow() -> None:
    wanted = to_narrow(rounds(UNSURE), "ours", "theirs")
    assert wanted is not None
    longer = rounds(UNSURE * (wanted // len(UNSURE) + 1))
    assert compare(longer, "ours", "theirs").half_width <= 1.2 * NARROW
