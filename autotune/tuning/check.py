"""Measure a profile's claim again, in seconds instead of a whole run: ``autotune check``."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from autotune.errors import NothingUsable, UsageError
from autotune.probes.facts import Inventory
from autotune.probes.inventory import probe
from autotune.profiles.file import read
from autotune.profiles.format import Profile, machine_type
from autotune.stats.proof import BASELINE, Proof, Round, compare
from autotune.trial.parent.trial_bench import TrialBench
from autotune.trial.target import Target
from autotune.tuning.events import BaselineKnown, Observer, RoundFinished, StageStarted
from autotune.tuning.machine import on_the_same_cpus
from autotune.tuning.runner import check_not_a_rank, open_runner
from autotune.tuning.schedule import BLOCK_SECONDS, ROUNDS


class Claim(Enum):
    """The fate of a profile's claim."""

    HOLDS = "holds"
    FAILS = "fails"
    OPEN = "open"


EXIT_CODES = {Claim.HOLDS: 0, Claim.FAILS: 4, Claim.OPEN: 5}


@dataclass(frozen=True)
class CheckResult:
    """A claim, and what a check measured."""

    level: str
    claimed: Proof
    measured: Proof

    @property
    def verdict(self) -> Claim:
        """`FAILS` if today's whole interval lies below the claimed one; `HOLDS` if all of it lies above half of the
        claimed gain (on the log scale, from the claim's lower end); else `OPEN`."""
        least = self.claimed.low
        if self.measured.high < least:
            return Claim.FAILS
        return Claim.HOLDS if self.measured.low >= min(least, math.sqrt(least)) else Claim.OPEN


def check(
    path: Path, target: Target, level: str | None, budget: float, observe: Observer, *, force: bool = False
) -> CheckResult:
    """Measure the claim of the profile in ``path`` again, for about ``budget`` seconds.

    Raises:
        UsageError: the profile is not for ``target`` on this machine, and not ``force``; or it claims nothing.
        NothingUsable: the settings do not run here.
    """
    check_not_a_rank()
    profile, inventory = read(path), probe()
    if not force:
        _check_same(path, profile, target, machine_type(inventory).key)
    return measure_claim(path, profile, target, inventory, level, budget, observe)


def _check_same(path: Path, profile: Profile, target: Target, key: str) -> None:
    """Raise `UsageError` if ``profile`` is for another task or machine: its claim is not about these."""
    own, here = f"{profile.target.name} on {profile.key}", f"{target.name} on {key}"
    if own != here:
        raise UsageError(f"{path}: is for {own}, this is {here}; --force measures it all the same")


def measure_claim(
    path: Path,
    profile: Profile,
    target: Target,
    inventory: Inventory,
    level: str | None,
    budget: float,
    observe: Observer,
) -> CheckResult:
    """Measure a level of ``profile`` against its baseline again, in turns, for about ``budget`` seconds.

    Raises:
        UsageError: no such level, or the level is the baseline itself: nothing is claimed.
        NothingUsable: the settings do not run here.
        MachineChanged: CPUs went away or came meanwhile.
    """
    observe = on_the_same_cpus(inventory, observe)
    deadline = time.monotonic() + budget
    name = _claiming_level(path, profile, level)
    with open_runner(target, inventory, 0, budget, observe) as runner:
        observe(BaselineKnown(profile.baseline, profile.target.unit))
        observe(StageStarted("loading the task"))
        runner.warm()
        observe(StageStarted("check"))
        rounds = _rounds(TrialBench(runner, profile.baseline), profile, name, deadline, observe)
    return CheckResult(name, profile.levels[name].speedup, compare(rounds, name, BASELINE))


def _claiming_level(path: Path, profile: Profile, level: str | None) -> str:
    """Return the level to check: ``level``, or the recommended one."""
    name = profile.checked_level(level)
    if profile.levels[name].settings == profile.baseline:
        raise UsageError(f"level {name} of {path} keeps the baseline's settings: there is no claim to check")
    return name


def _rounds(bench: TrialBench, profile: Profile, name: str, deadline: float, observe: Observer) -> list[Round]:
    """Return rounds of as many replicates as fit before ``deadline``, at least one."""
    candidates = {BASELINE: profile.baseline, name: profile.levels[name].settings}
    rounds: list[Round] = []
    longest, replicates = 0.0, 0
    while not replicates or time.monotonic() + longest < deadline:
        before = time.monotonic()
        with bench.contest(candidates, float("inf")) as contest:
            rounds += contest.rounds(replicates, ROUNDS, BLOCK_SECONDS)
        missing = set(candidates) - set(rounds[-1].rates)
        if missing:
            raise NothingUsable(f"{' and '.join(sorted(missing))}: the settings do not run on this machine")
        replicates += 1
        observe(RoundFinished(dict.fromkeys(rounds[-1].rates, len(rounds))))
        longest = max(longest, time.monotonic() - before)
    return rounds
