"""Turns of resident trials: what is measured again, and what is not."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest

from autotune.core.measurement import Block
from autotune.trial.parent.trial_bench import TrialContest

NEAR, APART = 25e-6, 75e-6


def block(rate: float, crossing: float = 0.0, stolen: float = 0.0) -> Block:
    return Block(round(1000 * rate), 1000.0, 1, stolen, crossing)


class Turns:
    """Stands for the runner: hands out blocks in the order asked for, whoever asks."""

    def __init__(self, *blocks: Block | None) -> None:
        self.left = deque(blocks)

    def block(self, _trial: Any, _seconds: float) -> Block | None:
        return self.left.popleft()


def contest(turns: Turns, *names: str) -> TrialContest:
    return TrialContest(turns, dict.fromkeys(names), random.Random(0))  # type: ignore[arg-type]


def test_a_disturbed_block_is_taken_once_more() -> None:
    turns = Turns(block(1, stolen=0.9), block(2), block(3, stolen=0.9), block(4, stolen=0.9))
    assert sorted(contest(turns, "a", "b").round(0.3).values()) == [2, 4]
    assert not turns.left


def test_a_round_in_which_the_cores_moved_is_taken_once_more() -> None:
    same = [block(10, NEAR), block(10, NEAR)]
    moved = [block(10, NEAR), block(6, APART)]
    apart = [block(6, APART), block(6, APART)]
    turns = Turns(*same, *moved, *apart, *apart)
    held = contest(turns, "a", "b")
    assert list(held.round(0.3).values()) == [10, 10]
    assert list(held.round(0.3).values()) == [6, 6], "the round with moved cores is left out"
    assert list(held.round(0.3).values()) == [6, 6], "both are apart: that is fair"
    assert not turns.left


def test_one_thread_has_no_distance_to_keep() -> None:
    turns = Turns(block(10, NEAR), block(5), block(6, APART), block(5))
    held = contest(turns, "a", "b")
    held.round(0.3)
    assert sorted(held.round(0.3).values()) == [5, 6]


@pytest.mark.parametrize("missing", [1, 2])
def test_who_ended_is_left_out(missing: int) -> None:
    turns = Turns(*[None] * missing, *[block(1, NEAR)] * (3 - missing))
    assert len(contest(turns, "a", "b", "c").round(0.3)) == 3 - missing


def test_what_counts_says_where_the_cores_were() -> None:
    turns = Turns(block(10, NEAR), block(5), block(6, APART), block(5))
    held = contest(turns, "a", "b")
    held.round(0.3)
    held.round(0.3)
    assert sorted(crossing for _, crossing in held.crossings) == [NEAR, APART]
