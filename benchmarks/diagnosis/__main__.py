"""Eight tasks that are bound by one thing each: is the verdict right, and does the bound hold once the thing is gone?

    python -m benchmarks.diagnosis [TASK ...] [--trials 3] [--budget 15]

`tasks/NAME.py` is bound by one thing and `tasks/NAME_removed.py` is the same without it. A bound holds where the rate
without it, over the rate with it, is no larger than the upper end of the bound's interval. Rates are trials in turn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

from autotune.commands.diagnose import measure
from autotune.diagnosis.passes import BANDWIDTH, OVERHEAD
from autotune.diagnosis.verdict import DISK, KINDS, MAIN_PROCESS, SLOW_SOURCE, THREADS
from autotune.knobs.baseline import baseline_settings
from autotune.probes.inventory import probe
from autotune.report.diagnosis import bound
from autotune.stats.outcome import Completed
from autotune.trial.parent.trial_bench import TrialBench
from autotune.trial.parts import EXCHANGE, LOADER, UPDATE
from autotune.trial.script import recognise_target
from autotune.tuning.events import ignore
from autotune.tuning.host_runner import open_runner

TASKS = Path(__file__).parent / "tasks"
TRUTH = {
    "slow_source": (SLOW_SOURCE, LOADER),
    "tiny_kernels": (KINDS[OVERHEAD], OVERHEAD),
    "huge_update": (KINDS[UPDATE], UPDATE),
    "memory_bandwidth": (KINDS[BANDWIDTH], BANDWIDTH),
    "exchange": (KINDS[EXCHANGE], EXCHANGE),
    "oversubscription": (KINDS[THREADS], THREADS),
    "disk": (DISK, LOADER),
    "augmentation": (MAIN_PROCESS, LOADER),
}
"""Task -> its verdict, and the part that is removed."""
SIDE_BY_SIDE = {"exchange": 2.0}
"""Without an exchange, so many processes train side by side; one is run."""


def rate(path: Path) -> float:
    """Items per second of one trial of the task's own settings."""
    inventory = probe()
    with open_runner(recognise_target(str(path), [], module=False, network=False), inventory, 0, 60.0) as runner:
        settings = baseline_settings(runner.describe(steps=False), inventory)
        outcome = TrialBench(runner, settings).measure(settings, 0.0, float("inf"))
    assert isinstance(outcome, Completed), outcome.reason
    assert outcome.measurement is not None
    return outcome.measurement.rate


def judge(name: str, trials: int, budget: float) -> dict[str, object]:
    """Verdict, bound, and what the removal really brought."""
    kind, part = TRUTH[name]
    target = recognise_target(str(TASKS / f"{name}.py"), [], module=False, network=False)
    found = measure(target, probe(), time.monotonic() + budget, ignore)
    times = SIDE_BY_SIDE.get(name, 1.0)
    gains = [times * rate(TASKS / f"{name}_removed.py") / rate(TASKS / f"{name}.py") for _ in range(trials)]
    upper = found.bounds[part]
    return {
        "task": name,
        "verdict": found.verdict.kind,
        "right": found.verdict.kind == kind,
        "bound": bound(upper),
        "removed": round(statistics.median(gains), 2),
        "holds": statistics.median(gains) <= upper.high,
    }


def main() -> None:
    """Print one JSON line a task, and the score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=list(TRUTH))
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--budget", type=float, default=15.0)
    options = parser.parse_args()
    results = []
    for name in options.tasks:
        results.append(judge(name, options.trials, options.budget))
        print(json.dumps(results[-1]), flush=True)
    right, holds = (sum(bool(result[key]) for result in results) for key in ("right", "holds"))
    print(f"verdict right in {right} of {len(results)}, bound holds in {holds}")


if __name__ == "__main__":
    main()
