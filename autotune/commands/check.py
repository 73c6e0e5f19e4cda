"""`autotune check`: does a profile's claim still hold here, now? Seconds instead of a whole run."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from autotune.core.decide import BASELINE
from autotune.core.errors import NothingUsable, UsageError
from autotune.core.proof import Proof, Round, compare
from autotune.host.runner import open_runner, refuse_ranks
from autotune.store.profiles import read
from autotune.trial.bench import TrialBench
from autotune.trial.contract import recognise
from autotune.tuning.state import Observer
from probes.inventory import probe

ROUNDS = 2
BLOCK_SECONDS = 0.3
LEAST_GENERATIONS = 2


@dataclass(frozen=True)
class Verdict:
    """What a check found."""

    level: str
    claimed: Proof
    measured: Proof

    @property
    def holds(self) -> bool:
        """True unless today's whole interval lies below the claimed one."""
        return self.measured.high >= self.claimed.low

    @property
    def text(self) -> str:
        """One line for people."""
        claim, now = self.claimed, self.measured
        answer = "holds" if self.holds else "does NOT hold here: tune again"
        return (
            f"level {self.level}: claimed {claim.value:.2f}x ({claim.low:.2f} to {claim.high:.2f}),"
            f" now {now.value:.2f}x ({now.low:.2f} to {now.high:.2f}, {now.rounds} rounds): {answer}"
        )


def check(profile: Path, task: Path, level: str | None, budget: float, observe: Observer) -> Verdict:
    """Measure a level of ``profile`` against its baseline again, in turns, for about ``budget`` seconds.

    Raises:
        UsageError: no such level, or the level is the baseline itself: nothing is claimed.
        NothingUsable: the settings do not run here.
    """
    refuse_ranks()
    deadline = time.monotonic() + budget
    file, found = recognise(task), read(profile)
    if found.target.nnodes > 1:
        raise UsageError(f"{profile}: measured on {found.target.nnodes} machines together, and this is one")
    name = level or found.recommended
    if name not in found.levels:
        raise UsageError(f"--level {name}: the profile has {', '.join(found.levels)}")
    claim = found.levels[name]
    if claim.settings == found.baseline:
        raise UsageError(f"level {name} of {profile} keeps the baseline's settings: there is no claim to check")
    rounds: list[Round] = []
    with open_runner(file.path, probe(), 0, budget, observe) as runner:
        observe(stage="loading the task", baseline=found.baseline, unit=found.target.unit)
        runner.warm()
        bench = TrialBench(runner, found.baseline)
        longest = 0.0
        while len({turn.generation for turn in rounds}) < LEAST_GENERATIONS or time.monotonic() + longest < deadline:
            before, number = time.monotonic(), len(rounds)
            with bench.contest({BASELINE: found.baseline, name: claim.settings}, float("inf")) as contest:
                rounds += [Round(number, contest.round(BLOCK_SECONDS)) for _ in range(ROUNDS)]
            if len(rounds[-1].rates) < 2:
                missing = {BASELINE, name} - set(rounds[-1].rates)
                raise NothingUsable(f"{' and '.join(sorted(missing))}: the settings do not run on this machine")
            observe(stage="check", rounds=dict.fromkeys(rounds[-1].rates, len(rounds)))
            longest = max(longest, time.monotonic() - before)
    return Verdict(name, claim.speedup, compare(rounds, name, BASELINE))
