"""The whole tuning run (search, race, proof) on a world, in simulated time: the real phases on a simulated bench."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from autotune.knobs.level import LEVELS, LOWEST
from autotune.knobs.settings import Settings
from autotune.search.history import Trial
from autotune.search.sampler import searches_of
from autotune.stats.outcome import Compared, Outcome
from autotune.stats.proof import BASELINE, Proof, compare
from autotune.tuning.comparing import Comparison
from autotune.tuning.options import Options
from autotune.tuning.result import proven_answers
from autotune.tuning.run import search_race_prove
from autotune.tuning.state import FINISH_SECONDS, RunState, Schedule
from benchmarks.replay.world import Draws, Process, World

STARTUP_SECONDS = 5.0
"""Shell to first trial: Python, probes, the zygote's imports, the dataset."""


@dataclass(frozen=True)
class Claim:
    """One level's answer, held against the truth."""

    level: str
    settings: Settings
    proven: bool
    quality: float
    """True rate over the level's optimum."""
    ratio: float
    """True rate over the baseline's."""
    interval: Proof | None
    """Of the candidate that stood for this level, proven or not."""
    candidate_ratio: float
    """True rate of that candidate over the baseline's."""


@dataclass(frozen=True)
class Tuned:
    """One simulated run."""

    seconds: float
    trials: int
    claims: tuple[Claim, ...]


def tune(world: World, seed: int, budget: float | None = None) -> Tuned:
    """One tuning run of ``budget`` simulated seconds; by default as many as the tuner gives itself."""
    draws = world.draws(seed)
    context = next(iter(world.spaces.values())).context
    own, options = context.baseline, Options(budget=budget, train_seconds=context.train_seconds)
    bench = Bench(draws)
    draws.seconds += STARTUP_SECONDS
    first = Trial(own, bench.measure(own, 0.0, math.inf), LOWEST)
    state = RunState(
        baseline=own,
        bench=bench,
        spaces=world.spaces,
        schedule=Schedule(lambda: draws.seconds, 0.0, options.seconds(first.outcome)),
        new_search=searches_of(None, seed),
        settle=Comparison(own, lambda _: Compared(), context.inventory).settle,
    )
    state.add(first)
    state.estimate_durations()
    search_race_prove(state)
    results = proven_answers(state, LEVELS)
    base = world.truth(own)
    claims = []
    for level, result in results.items():
        candidate = state.chosen.get(level)
        interval = compare(state.rounds, level, BASELINE) if candidate and state.rounds else None
        claims.append(
            Claim(
                level,
                result.settings,
                result.proven and result.settings == candidate,
                world.truth(result.settings) / world.optimum(level),
                world.truth(result.settings) / base,
                interval,
                world.truth(candidate) / base if candidate else 1.0,
            )
        )
    return Tuned(draws.seconds + FINISH_SECONDS, len(state.history), tuple(claims))


class Bench:
    """See `autotune.trial.parent.trial_bench.TrialBench`."""

    is_live = False

    def __init__(self, draws: Draws) -> None:
        self.draws = draws

    def measure(self, settings: Settings, give_up_below: float, deadline: float) -> Outcome:
        """One trial."""
        return self.draws.trial(settings, give_up_below)

    @contextmanager
    def start_replicate(self, candidates: Mapping[str, Settings]) -> Iterator[Contest]:
        """Residents of all ``candidates``."""
        started = {name: self.draws.process(settings) for name, settings in candidates.items()}
        yield Contest({name: process for name, process in started.items() if process is not None})


class Contest:
    """See `autotune.trial.parent.trial_bench.RunningReplicate`."""

    neighbours = cpu_wait = 0.0

    def __init__(self, processes: Mapping[str, Process]) -> None:
        self.processes = processes

    def round(self, seconds: float) -> dict[str, float]:
        """One block of each."""
        return {name: process.block(seconds) for name, process in self.processes.items()}
