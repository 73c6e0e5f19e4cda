"""``autotune check``: does a profile's claim still hold here? Seconds instead of a whole run."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from autotune.commands.live_view import live_view
from autotune.core.decide import BASELINE
from autotune.core.errors import NothingUsable, UsageError
from autotune.core.events import BaselineKnown, Observer, RoundFinished, StageStarted
from autotune.core.profile import Profile
from autotune.core.proof import Proof, Round, compare
from autotune.host.runner import open_runner
from autotune.host.signals import check_not_a_rank
from autotune.probes.inventory import probe
from autotune.store.profiles import read
from autotune.trial.parent.trial_bench import TrialBench
from autotune.trial.script import Target
from autotune.tuning.schedule import BLOCK_SECONDS, ROUNDS

LEAST_GENERATIONS = 2


@dataclass(frozen=True)
class CheckResult:
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
        verdict = "holds" if self.holds else "does NOT hold here: tune again"
        return (
            f"level {self.level}: claimed {claim.value:.2f}x ({claim.low:.2f} to {claim.high:.2f}),"
            f" now {now.value:.2f}x ({now.low:.2f} to {now.high:.2f}, {now.rounds} rounds): {verdict}"
        )


def check(path: Path, target: Target, level: str | None, budget: float) -> bool:
    """Measure the claim of a profile again and print what was found; True if it holds."""
    with live_view(budget, time.monotonic()) as observe:
        result = measure_claim(path, target, level, budget, observe)
    print(result.text)
    return result.holds


def measure_claim(path: Path, target: Target, level: str | None, budget: float, observe: Observer) -> CheckResult:
    """Measure a level of the profile at ``path`` against its baseline again, in turns, for about ``budget`` seconds.

    Raises:
        UsageError: no such level, or the level is the baseline itself: nothing is claimed.
        NothingUsable: the settings do not run here.
    """
    check_not_a_rank()
    deadline = time.monotonic() + budget
    profile = read(path)
    name = _claiming_level(path, profile, level)
    with open_runner(target, probe(), 0, budget, observe) as runner:
        observe(BaselineKnown(profile.baseline, profile.target.unit))
        observe(StageStarted("loading the task"))
        runner.warm()
        observe(StageStarted("check"))
        rounds = _rounds(TrialBench(runner, profile.baseline), profile, name, deadline, observe)
    return CheckResult(name, profile.levels[name].speedup, compare(rounds, name, BASELINE))


def _claiming_level(path: Path, profile: Profile, level: str | None) -> str:
    """The level to check: ``level``, or the recommended one."""
    if profile.target.nnodes > 1:
        raise UsageError(f"{path}: measured on {profile.target.nnodes} machines together, and this is one")
    name = level or profile.recommended
    if name not in profile.levels:
        raise UsageError(f"--level {name}: the profile has {', '.join(profile.levels)}")
    if profile.levels[name].settings == profile.baseline:
        raise UsageError(f"level {name} of {path} keeps the baseline's settings: there is no claim to check")
    return name


def _rounds(bench: TrialBench, profile: Profile, name: str, deadline: float, observe: Observer) -> list[Round]:
    """Rounds of as many generations as fit before ``deadline``, at least `LEAST_GENERATIONS`."""
    contenders = {BASELINE: profile.baseline, name: profile.levels[name].settings}
    rounds: list[Round] = []
    longest, generations = 0.0, 0
    while generations < LEAST_GENERATIONS or time.monotonic() + longest < deadline:
        before = time.monotonic()
        with bench.contest(contenders, float("inf")) as contest:
            rounds += [Round(generations, contest.round(BLOCK_SECONDS)) for _ in range(ROUNDS)]
        missing = set(contenders) - set(rounds[-1].rates)
        if missing:
            raise NothingUsable(f"{' and '.join(sorted(missing))}: the settings do not run on this machine")
        generations += 1
        observe(RoundFinished(dict.fromkeys(rounds[-1].rates, len(rounds))))
        longest = max(longest, time.monotonic() - before)
    return rounds
