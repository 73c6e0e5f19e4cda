"""Turns of resident trials: what is measured again, and what is not."""

import random
from collections import deque
from typing import Any

import pytest

from autotune.knobs.settings import Settings
from autotune.stats.measurement import Block
from autotune.trial.parent.trial_bench import RunningReplicate


def block(rate: float, steal: float = 0.0) -> Block:
    return Block(round(1000 * rate), 1000.0, 1, steal)


class Turns:
    """Stands for each trial: hands out blocks in the order asked for, whoever asks."""

    is_over = False

    def __init__(self, *blocks: Block | None) -> None:
        self.left = deque(blocks)

    def block(self, _seconds: float, _settings: object) -> Block | None:
        return self.left.popleft()


def contest(turns: Turns, *names: str) -> RunningReplicate:
    def trial_of(_name: str) -> Any:
        return turns

    return RunningReplicate(dict.fromkeys(names, Settings()), trial_of, random.Random(0))


def test_a_disturbed_block_is_taken_once_more() -> None:
    turns = Turns(block(1, steal=0.9), block(2), block(3, steal=0.9), block(4, steal=0.9))
    assert sorted(contest(turns, "a", "b").round(0.3).values()) == [2, 4]
    assert not turns.left


def test_beside_a_lasting_load_no_block_is_taken_again() -> None:
    """Only the bad ones would be: what is left would be faster than training is."""
    turns = Turns(
        block(1, steal=0.3), block(2, steal=0.3), block(3, steal=0.3), block(4), block(5, steal=0.3), block(6)
    )
    held = contest(turns, "a")
    assert [held.round(0.3)["a"] for _ in range(4)] == [2, 3, 4, 6], "once more at first, and after a quiet round"
    assert not turns.left


@pytest.mark.parametrize("missing", [1, 2])
def test_who_ended_is_left_out(missing: int) -> None:
    turns = Turns(*[None] * missing, *[block(1)] * (3 - missing))
    assert len(contest(turns, "a", "b", "c").round(0.3)) == 3 - missing
