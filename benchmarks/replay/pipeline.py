"""The whole tuning run (search, race, proof) on a world, in simulated time: the real `Tuner` with a simulated bench."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from autotune.core.decide import BASELINE
from autotune.core.knobs import LEVELS
from autotune.core.outcome import Outcome
from autotune.core.proof import Proof, compare
from autotune.core.settings import Settings
from autotune.search.staged import StagedSearch, finalists
from autotune.search.study import open_study
from autotune.tuning.run import Options
from autotune.tuning.search import Tuner
from autotune.tuning.state import settle_baseline
from benchmarks.replay.world import Draws, Process, World

STARTUP_SECONDS = 5.0
"""Shell to first trial: Python, probes, the zygote's imports, the dataset."""
FINISH_SECONDS = 1.0


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
    """Of the contender that stood for this level, proven or not."""
    contender_ratio: float
    """True rate of that contender over the baseline's."""


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
    bench = Bench(draws, own)
    draws.seconds += STARTUP_SECONDS
    history: list = []
    settle_baseline(bench, own, history, lambda _: None, options.seconds(), [])
    deadline = options.seconds(history[-1].outcome) - FINISH_SECONDS
    study = open_study()
    tuner = Tuner(
        bench,
        world.spaces,
        lambda space, start, seen, thorough: StagedSearch(
            space, study, start=start, history=seen, seed=seed, thorough=thorough
        ),
        finalists,
        lambda: draws.seconds,
        deadline,
        history,
    )
    tuning = tuner.run(lambda **_: None)
    results = tuning.results(LEVELS)
    base = world.truth(own)
    claims = []
    for level, result in results.items():
        contender = tuning.chosen.get(level)
        interval = compare(tuning.rounds, level, BASELINE) if contender and tuning.rounds else None
        claims.append(
            Claim(
                level,
                result.settings,
                result.proven and result.settings == contender,
                world.truth(result.settings) / world.optimum(level),
                world.truth(result.settings) / base,
                interval,
                world.truth(contender) / base if contender else 1.0,
            )
        )
    return Tuned(draws.seconds + FINISH_SECONDS, len(tuning.history), tuple(claims))


class Bench:
    """See `autotune.tuning.state.Bench`."""

    def __init__(self, draws: Draws, baseline: Settings) -> None:
        self.draws, self.baseline = draws, baseline

    def remember(self, outcome: Outcome) -> None:
        """Nothing to compare losses with."""

    def measure(self, settings: Settings, give_up_below: float, deadline: float) -> Outcome:
        """One trial."""
        return self.draws.trial(settings, give_up_below)

    @contextmanager
    def contest(self, contenders: Mapping[str, Settings], deadline: float) -> Iterator[Contest]:
        """Residents of all ``contenders``."""
        started = {name: self.draws.process(settings) for name, settings in contenders.items()}
        yield Contest({name: process for name, process in started.items() if process is not None})


class Contest:
    """See `autotune.tuning.state.Contest`."""

    def __init__(self, processes: Mapping[str, Process]) -> None:
        self.processes = processes

    def round(self, seconds: float) -> dict[str, float]:
        """One block of each."""
        return {name: process.block(seconds) for name, process in self.processes.items()}
