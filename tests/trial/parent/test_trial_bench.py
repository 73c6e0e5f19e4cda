"""Turns of resident trials: what is measured again, and what is not."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest

from autotune.stats.measurement import Block
from autotune.trial.parent.trial_bench import TrialContest

LOW, HIGH = 25e-6, 75e-6


def block(rate: float, latency: float = 0.0, cpu_wait: float = 0.0) -> Block:
    return Block(round(1000 * rate), 1000.0, 1, cpu_wait, latency)


class Turns:
    """Stands for the runner: hands out blocks in the order asked for, whoever asks."""

    def __init__(self, *blocks: Block | None) -> None:
        self.left = deque(blocks)

    def block(self, _trial: Any, _seconds: float) -> Block | None:
        return self.left.popleft()


def contest(turns: Turns, *names: str) -> TrialContest:
    return TrialContest(turns, dict.fromkeys(names), random.Random(0))  # type: ignore[arg-type]


def test_a_disturbed_block_is_taken_once_more() -> None:
    turns = Turns(block(1, cpu_wait=0.9), block(2), block(3, cpu_wait=0.9), block(4, cpu_wait=0.9))
    assert sorted(contest(turns, "a", "b").round(0.3).values()) == [2, 4]
    assert not turns.left


def test_beside_a_lasting_load_no_block_is_taken_again() -> None:
    """Only the bad ones would be: what is left would be faster than training is."""
    turns = Turns(*(block(number, cpu_wait=0.3) for number in (1, 2, 3)), block(4), block(5, cpu_wait=0.3), block(6))
    held = contest(turns, "a")
    assert [held.round(0.3)["a"] for _ in range(4)] == [2, 3, 4, 6], "once more at first, and after a quiet round"
    assert not turns.left


def test_a_round_in_which_latency_changed_is_taken_once_more() -> None:
    same = [block(10, LOW), block(10, LOW)]
    moved = [block(10, LOW), block(6, HIGH)]
    apart = [block(6, HIGH), block(6, HIGH)]
    turns = Turns(*same, *moved, *apart, *apart)
    held = contest(turns, "a", "b")
    assert list(held.round(0.3).values()) == [10, 10]
    assert list(held.round(0.3).values()) == [6, 6], "the round in between is left out"
    assert list(held.round(0.3).values()) == [6, 6], "high for both: that is fair"
    assert not turns.left


def test_one_thread_has_no_latency() -> None:
    turns = Turns(block(10, LOW), block(5), block(6, HIGH), block(5))
    held = contest(turns, "a", "b")
    held.round(0.3)
    assert sorted(held.round(0.3).values()) == [5, 6]


@pytest.mark.parametrize("missing", [1, 2])
def test_who_ended_is_left_out(missing: int) -> None:
    turns = Turns(*[None] * missing, *[block(1, LOW)] * (3 - missing))
    assert len(contest(turns, "a", "b", "c").round(0.3)) == 3 - missing


def test_latencies_of_what_counts_are_kept() -> None:
    turns = Turns(block(10, LOW), block(5), block(6, HIGH), block(5))
    held = contest(turns, "a", "b")
    held.round(0.3)
    held.round(0.3)
    assert sorted(latency for _, latency in held.latencies) == [LOW, HIGH]
