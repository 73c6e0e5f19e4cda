"""Machines with known truth, with a clock that only the bench moves."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from autotune.errors import Interrupted
from autotune.knobs.level import LEVELS
from autotune.knobs.settings import Settings
from autotune.knobs.space import Space
from autotune.search.history import Trial
from autotune.search.planner import Proposal
from autotune.search.sampler import searches_of
from autotune.stats.measurement import Block, Measurement
from autotune.stats.outcome import Completed, Outcome
from autotune.stats.proof import ANALYSES
from autotune.tuning.events import Observer, ignore
from autotune.tuning.run import search_race_prove
from autotune.tuning.state import FINISH_SECONDS, RunState, Schedule
from tests.doubles.simulation import machines

MACHINE = machines.default_best()
OWN = MACHINE.context.baseline
SPACES = {level: MACHINE.space(level) for level in LEVELS}
Rate = Callable[[Settings], float]
NewSearch = Callable[[Space, Settings, bool, Sequence[Trial]], Any]


@dataclass
class FakeBench:
    """Measures by a formula; every second it costs moves its own clock.

    Attributes:
        rate: true items per second.
        fate: how a trial of the settings fails; None where it does not.
        trial: seconds of one trial; more than half of it is starting.
        noise: of trials, of a replicate's processes, and of one block.
        cpu_wait: CPU wait share of a candidate.
        interrupt_at: the trial, or the replicate, in which the user presses Ctrl-C.
    """

    rate: Rate
    seed: int = 0
    fate: Callable[[Settings], Outcome | None] = lambda _: None
    trial: float = 1.0
    noise: tuple[float, float, float] = (0.03, 0.02, 0.05)
    interrupt_at: tuple[int | None, int | None] = (None, None)
    dead: frozenset[str] = frozenset()
    cpu_wait: float = 0.0
    now: float = 1000.0
    measured: list[Settings] = field(default_factory=list)
    contests: list[dict[str, Settings]] = field(default_factory=list)
    baseline: Settings = OWN
    is_live: bool = False
    blocks: list[float] = field(default_factory=list)
    """How long they were."""

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)

    def clock(self) -> float:
        return self.now

    def spend(self, seconds: float) -> None:
        self.now += seconds

    def measure(self, settings: Settings, give_up_below: float, deadline: float) -> Outcome:
        self.measured.append(settings)
        if len(self.measured) == self.interrupt_at[0]:
            raise Interrupted(2)
        self.spend(self.trial)
        return self.fate(settings) or completed(self.rate(settings) * self.luck(0), self.trial)

    def remember(self, outcome: Outcome) -> None:
        """Losses and timeouts are those of a formula, too."""

    def luck(self, which: int) -> float:
        return math.exp(self.draw.gauss(0, self.noise[which]))

    @contextmanager
    def start_replicate(self, candidates: Mapping[str, Settings]) -> Iterator[FakeContest]:
        self.contests.append(dict(candidates))
        if len(self.contests) == self.interrupt_at[1]:
            raise Interrupted(15)
        self.spend(0.6 * self.trial * len(candidates))
        yield FakeContest(self, {name: self.rate(chosen) * self.luck(1) for name, chosen in candidates.items()})


class FakeContest:
    """One replicate: each process keeps its luck."""

    neighbours = 0.0

    def __init__(self, bench: FakeBench, rates: dict[str, float]) -> None:
        self.bench, self.rates, self.cpu_wait = bench, rates, bench.cpu_wait

    def round(self, seconds: float) -> dict[str, float]:
        self.bench.blocks.append(seconds)
        self.bench.spend(seconds * len(self.rates))
        return {name: rate * self.bench.luck(2) for name, rate in self.rates.items() if name not in self.bench.dead}


def completed(rate: float, seconds: float = 1.0) -> Completed:
    """A measured trial of so many items per second."""
    return Completed(
        measurement=Measurement(
            (Block(round(1e6 * rate), 1e6, max(1, round(1e6 * rate / MACHINE.context.baseline.global_batch))),)
        ),
        losses=(1.0,),
        seconds=seconds,
        start_seconds=0.6 * seconds,
    )


@dataclass
class Listed:
    """A search that proposes these settings in turn."""

    pending: list[Settings]

    def ask(self) -> Proposal | None:
        return Proposal(self.pending.pop(0)) if self.pending else None

    def tell(self, trial: Trial) -> None:
        """What is proposed does not depend on it."""


def listed(**by_level: Sequence[Settings]) -> NewSearch:
    """A search for every level that proposes what is given for it, each once."""
    left = {level: Listed(list(by_level.get(level, ()))) for level in LEVELS}
    return lambda space, start, thorough, history: left[space.level]


def wandering(seed: int, count: int = 8) -> NewSearch:
    """A search that proposes random moves from where it starts."""

    def search(space: Space, start: Settings, thorough: bool, history: Sequence[Trial]) -> Any:
        draw = random.Random(f"{seed} {space.level}")
        moves = [settings for _, settings in space.moves(start)]
        return Listed([] if thorough else draw.sample(moves, min(count, len(moves))))

    return search


def make(
    bench: FakeBench,
    search: NewSearch | None = None,
    budget: float = 120.0,
    history: Sequence[Trial] | None = None,
    spaces: Mapping[str, Space] = SPACES,
    observe: Observer = ignore,
) -> RunState:
    """A run whose baseline has been measured, or whose ``history`` is resumed; the project's own search if None."""
    own = next(iter(spaces.values())).context.baseline
    schedule = Schedule(bench.clock, bench.now, budget + FINISH_SECONDS)
    if history is None:
        bench.spend(bench.trial)
        history = [Trial(own, completed(bench.rate(own) * bench.luck(0), bench.trial), "safe")]
    state = RunState(
        baseline=own,
        bench=bench,
        schedule=schedule,
        spaces=spaces,
        observe=observe,
        new_search=search or searches_of(None, 0),
    )
    state.add(*history)
    state.estimate_durations()
    return state


def run(state: RunState) -> RunState:
    """Do search, race and proof."""
    search_race_prove(state)
    return state


def empty(own: Settings = OWN, **found: Any) -> RunState:
    """A run that knows nothing but ``found``."""
    bench = FakeBench(speeds({}))
    schedule = Schedule(bench.clock, bench.now, 120.0)
    return RunState(baseline=own, bench=bench, schedule=schedule, spaces=SPACES, new_search=listed(), **found)


def speeds(table: Mapping[Settings, float]) -> Rate:
    """Rates of the named settings; 1000 for all others."""
    return lambda chosen: 1000.0 * table.get(chosen, 1.0)


FAST = next(s for what, s in SPACES["safe"].moves(OWN) if what == "num_workers")
FASTER = next(s for what, s in SPACES["safe"].moves(FAST) if what == "optimizer_impl")
LOW = FASTER.but(precision="bf16")
LARGE = LOW.but(batch_size=2 * LOW.batch_size)
NARROW = list(ANALYSES)[1]
"""Replicates after which a gain on a still machine has a narrow interval."""
STILL = (0.002, 0.002, 0.002)
"""A machine with hardly any noise."""
