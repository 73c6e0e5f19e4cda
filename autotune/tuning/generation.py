"""One generation: contenders start side by side as fresh processes and take blocks in turn."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from autotune.knobs.settings import Settings
from autotune.stats.proof import Round
from autotune.tuning.events import RoundFinished
from autotune.tuning.schedule import BLOCK_SECONDS, block_seconds, startup_seconds
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
    """``count`` rounds of all ``contenders``, as generation ``number``.

    Blocks take so many ``seconds`` on a quiet machine, longer beside others.
    """
    rounds: list[Round] = []
    missed: list[float] = []
    seconds = block_seconds(state, seconds)
    schedule = tools.schedule
    began = schedule.clock()
    with tools.bench.contest(contenders, schedule.deadline) as contest:
        expected = sum(startup_seconds(state, settings) for settings in contenders.values())
        state.slowness = (schedule.clock() - began) / expected
        for _ in range(count):
            rates = contest.round(seconds)
            rounds.append(Round(number, rates, contest.neighbours))
            missed.append(contest.missed)
            done = len(state.rounds) + len(rounds)
            tools.observe(RoundFinished(dict.fromkeys(rounds[-1].rates, done)))
    state.missed = statistics.mean(missed or [state.missed])
    return rounds
