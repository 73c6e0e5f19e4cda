"""A bench whose clock moves only when a trial costs something: tests of a whole run take milliseconds and never sleep.

It has the methods of the real bench. A formula gives the rates, a seed gives the noise.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from autotune.core.errors import Interrupted
from autotune.core.measurement import Block, Measurement
from autotune.core.outcome import Completed, Outcome
from autotune.knobs.settings import Settings

BASELINE = Settings(threads=2, interop_threads=2, batch_size=64)


@dataclass
class FakeBench:
    """Measures by a formula; every second it costs moves its own clock.

    Attributes:
        rate: true items per second.
        seed: of the noise.
        failure: how a trial of the settings fails; None where it does not.
        trial: seconds of one trial; more than half of it is starting.
        noise: standard deviation of the log rate of a trial, of a generation's process, and of one block.
        interrupt_at: number of the trial, and of the contest, in which the user presses Ctrl-C.
        dead: names of contenders that end before their first block.
        now: the clock.
        measured, contests, remembered: the calls so far.
    """

    rate: Callable[[Settings], float]
    seed: int = 0
    failure: Callable[[Settings], Outcome | None] = lambda _: None
    trial: float = 1.0
    noise: tuple[float, float, float] = (0.03, 0.02, 0.05)
    interrupt_at: tuple[int | None, int | None] = (None, None)
    dead: frozenset[str] = frozenset()
    now: float = 1000.0
    baseline: Settings = BASELINE
    measured: list[Settings] = field(default_factory=list)
    remembered: list[Outcome] = field(default_factory=list)
    contests: list[dict[str, Settings]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.longest = 0.0
        """Seconds of the longest contest."""

    def clock(self) -> float:
        """Seconds."""
        return self.now

    def spend(self, seconds: float) -> None:
        """Move the clock."""
        self.now += seconds

    def remember(self, outcome: Outcome) -> None:
        """Keep an outcome of the baseline."""
        self.remembered.append(outcome)

    def measure(self, settings: Settings, give_up_below: float, deadline: float) -> Outcome:
        """One trial."""
        self.measured.append(settings)
        if len(self.measured) == self.interrupt_at[0]:
            raise Interrupted(2)
        self.spend(self.trial)
        return self.failure(settings) or completed(self.rate(settings) * self.luck(0), self.trial)

    def luck(self, which: int) -> float:
        """A random factor: 0 of a trial, 1 of a process, 2 of a block."""
        return math.exp(self.random.gauss(0, self.noise[which]))

    @contextmanager
    def contest(self, contenders: Mapping[str, Settings], deadline: float) -> Iterator[FakeContest]:
        """One generation of resident processes."""
        self.contests.append(dict(contenders))
        if len(self.contests) == self.interrupt_at[1]:
            raise Interrupted(15)
        before = self.now
        self.spend(0.6 * self.trial * len(contenders))
        yield FakeContest(self, {name: self.rate(chosen) * self.luck(1) for name, chosen in contenders.items()})
        self.longest = max(self.longest, self.now - before)


@dataclass(frozen=True)
class FakeContest:
    """One generation: each process keeps its luck. ``rates`` are items per second by name."""

    bench: FakeBench
    rates: Mapping[str, float]
    neighbours: float = 0.0
    missed: float = 0.0

    def round(self, seconds: float) -> dict[str, float]:
        """One block of each contender that lives."""
        self.bench.spend(seconds * len(self.rates))
        return {name: rate * self.bench.luck(2) for name, rate in self.rates.items() if name not in self.bench.dead}


def completed(rate: float, seconds: float = 1.0, batch: int = BASELINE.batch_size) -> Completed:
    """A trial of ``seconds`` that measured ``rate`` items per second in steps of ``batch`` items."""
    items = round(1e6 * rate)
    measurement = Measurement((Block(items, 1e6, max(1, round(1e6 * rate / batch))),))
    return Completed(measurement=measurement, losses=(1.0,), seconds=seconds, start_seconds=0.6 * seconds)
