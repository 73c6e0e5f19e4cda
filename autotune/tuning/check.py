"""Measure a profile's claim again, in seconds instead of a whole run: ``autotune check``."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from autotune import project
from autotune.errors import NothingUsable, UsageError
from autotune.probes.facts import Inventory
from autotune.probes.inventory import probe
from autotune.profiles.format import Profile, machine_type
from autotune.profiles.match import NONE, Here
from autotune.profiles.registry import of_file
from autotune.stats.proof import BASELINE, Proof, Round, compare
from autotune.trial.parent.judge import judge
from autotune.trial.parent.trial_bench import TrialBench
from autotune.trial.target import Target
from autotune.tuning.events import Observer
from autotune.tuning.runner import check_not_a_rank, open_runner, same_cpus
from autotune.tuning.schedule import BLOCK_SECONDS, ROUNDS


class Claim(Enum):
    """The verdict on a profile's claim."""

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
        """Return `FAILS` if today's whole interval lies below the claimed one; `HOLDS` if all of it lies above half of
        the claimed gain (on the log scale, from the claim's lower end); else `OPEN`."""
        least = self.claimed.low
        if self.measured.high < least:
            return Claim.FAILS
        return Claim.HOLDS if self.measured.low >= min(least, math.sqrt(least)) else Claim.OPEN


def check(
    path: Path | str, target: Target, level: str | None, budget: float, observe: Observer, *, force: bool = False
) -> CheckResult:
    """Measure what the profile in ``path`` claims for ``level`` again, for about ``budget`` seconds.

    Raises:
        UsageError: the profile is not for ``target`` on this machine, and not ``force``; it has no such level, or the
            level is the baseline itself: nothing is claimed.
        NothingUsable: the settings could not be measured here; with the exit code of `Claim.OPEN`.
        MachineChanged: the CPUs that may be used changed meanwhile.
    """
    check_not_a_rank()
    inventory = probe()
    found = of_file(path, Here.on(inventory))
    profile, key = found.profile, machine_type(inventory).key
    own, here = f"{profile.target.name} on {profile.key}", f"{target.name} on {key}"
    same = profile.key == key and profile.target.name in project.names_of(target.path)
    if (not same or found.verdict == NONE) and not force:
        why = found.sentence if same else f"is for {own}, this is {here}"
        raise UsageError(f"{path}: {why}; --force measures it all the same")
    name = profile.checked_level(level)
    if profile.levels[name].settings == profile.baseline:
        raise UsageError(f"level {name} of {path} keeps the baseline's settings: there is no claim to check")
    try:
        measured = measure_claim(profile, name, target, inventory, budget, observe)
    except NothingUsable as error:
        error.exit_code = EXIT_CODES[Claim.OPEN]
        raise
    return CheckResult(name, profile.levels[name].speedup, measured)


def measure_claim(
    profile: Profile, name: str, target: Target, inventory: Inventory, budget: float, observe: Observer
) -> Proof:
    """Measure level ``name`` of ``profile`` against its baseline again, in turns.

    As many replicates are measured as fit into ``budget`` seconds, at least one.
    """
    deadline = time.monotonic() + budget
    candidates = {BASELINE: profile.baseline, name: profile.levels[name].settings}
    rounds: list[Round] = []
    longest, replicates = 0.0, 0
    with open_runner(target, inventory, 0, budget, observe) as runner, same_cpus(inventory):
        observe(stage=target.loading, baseline=profile.baseline, unit=profile.target.unit)
        runner.warm()
        observe(stage="check")
        bench = TrialBench(runner, profile.baseline)
        if profile.evidence.run is not None:
            bench.mmap_threshold = profile.evidence.run.mmap_threshold
        while not replicates or time.monotonic() + longest < deadline:
            begun = time.monotonic()
            with bench.start_replicate(candidates) as replicate:
                rounds += replicate.rounds(replicates, ROUNDS, BLOCK_SECONDS)
            for ended, trial in replicate.ended.items():
                what = "your own settings" if ended == BASELINE else f"level {ended}"
                raise NothingUsable(f"{what} could not be measured: {(trial.last or judge(trial.end)).reason}")
            replicates += 1
            observe(rounds=dict.fromkeys(rounds[-1].rates, len(rounds)))
            longest = max(longest, time.monotonic() - begun)
    return compare([profile.by_worth(each) for each in rounds], name, BASELINE)
