"""One generation: contenders start side by side as fresh processes and take blocks in turn."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.core.events import RoundFinished
from autotune.core.proof import Round
from autotune.core.settings import Settings
from autotune.tuning.schedule import BLOCK_SECONDS, startup_seconds
from autotune.tuning.state import RunState
from autotune.tuning.tools import Tools


def run_generation(
    state: RunState,
    tools: Tools,
    number: int,
    contenders: Mapping[str, Settings],
    count: int,
    seconds: float = BLOCK_SECONDS,
) -> list[Round]:
    """``count`` rounds of all ``contenders``, as generation ``number``, with blocks of so many ``seconds``."""
    rounds: list[Round] = []
    schedule = tools.schedule
    began = schedule.clock()
    with tools.bench.contest(contenders, schedule.deadline) as contest:
        expected = sum(startup_seconds(state, settings) for settings in contenders.values())
        state.slowness = (schedule.clock() - began) / expected
        for _ in range(count):
            rates = contest.round(seconds)
            rounds.append(Round(number, rates, contest.neighbours))
            done = len(state.rounds) + len(rounds)
            tools.observe(RoundFinished(dict.fromkeys(rounds[-1].rates, done)))
    return rounds
