"""Where the seconds of a proof go: starts, warm-ups, blocks that count, and what lies around them.

    python -m benchmarks.proof_time TASK.py [--generations 4] [--rounds 2]

The user's settings three times, as the baseline and two levels, in the tuner's own generations.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from pathlib import Path

from autotune.knobs.baseline import baseline_settings
from autotune.probes.inventory import probe
from autotune.stats.measurement import Block
from autotune.trial.messages import TrialSpec
from autotune.trial.parent.runner import Runner
from autotune.trial.parent.running_trial import RunningTrial, Timeouts
from autotune.trial.parent.trial_bench import TrialBench
from autotune.trial.target import recognise
from autotune.tuning.host_runner import open_runner
from autotune.tuning.schedule import BLOCK_SECONDS, ROUNDS

NAMES = ("baseline", "safe", "amp")


class Watched:
    """A runner that books the seconds of all that a contest asks of it."""

    def __init__(self, runner: Runner) -> None:
        self.runner, self.seconds = runner, Counter[str]()

    def start(self, spec: TrialSpec, timeouts: Timeouts) -> RunningTrial:
        """See `Runner.start`."""
        return self.runner.start(spec, timeouts)

    def ready(self, trial: RunningTrial) -> bool:
        """See `Runner.ready`."""
        is_ready = self.runner.ready(trial)
        self.seconds["start"] += trial.start_seconds
        self.seconds["warm-up"] += time.monotonic() - trial.requested_at - trial.start_seconds
        return is_ready

    def block(self, trial: RunningTrial, seconds: float) -> Block | None:
        """See `Runner.block`."""
        began = time.monotonic()
        block = self.runner.block(trial, seconds)
        self.seconds["blocks"] += block.seconds if block else 0.0
        self.seconds["around blocks"] += time.monotonic() - began - (block.seconds if block else 0.0)
        self.seconds["blocks taken"] += 1
        return block

    def stop(self, trial: RunningTrial) -> None:
        """See `Runner.stop`."""
        began = time.monotonic()
        self.runner.stop(trial)
        self.seconds["end"] += time.monotonic() - began


def main() -> None:
    """Print seconds of a generation, by phase."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", type=Path)
    parser.add_argument("--generations", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    inventory = probe()
    with open_runner(recognise(arguments.task), inventory, 0, 3600.0) as runner:
        baseline = baseline_settings(runner.describe(), inventory)
        bench = TrialBench(runner, baseline)
        bench.remember(bench.measure(baseline, 0.0, math.inf))
        bench.runner = watched = Watched(runner)
        began = time.monotonic()
        for _ in range(arguments.generations):
            with bench.contest(dict.fromkeys(NAMES, baseline), math.inf) as contest:
                for _ in range(arguments.rounds):
                    contest.round(BLOCK_SECONDS)
        whole = time.monotonic() - began
    taken = watched.seconds.pop("blocks taken")
    for phase, seconds in watched.seconds.items():
        print(f"{phase}: {seconds / arguments.generations:.2f} s")
    wanted = arguments.generations * arguments.rounds * len(NAMES)
    print(
        f"a generation: {whole / arguments.generations:.2f} s; blocks taken for one that counts: {taken / wanted:.2f}"
    )


if __name__ == "__main__":
    main()
