"""Whether the tuner finds how many training processes a task wants, and over which backend.

    python -m benchmarks.processes examples/tabular_mlp.py [--budget 60] [--generations 4]

Measures every way to divide the cores (processes, threads, backend, binding, loader workers; all else as the user has
it) once, tunes the same knobs through the command line, and then lets the user's settings, what was found, and the
best of one process and of several take turns in fresh processes. Writes ``benchmarks/results/processes-<task>.json``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from autotune.knobs.baseline import baseline_settings
from autotune.knobs.knob import Context
from autotune.knobs.settings import Settings
from autotune.knobs.space import build
from autotune.probes.inventory import probe
from autotune.profiles import file as profiles
from autotune.stats.decide import BASELINE
from autotune.stats.outcome import Completed
from autotune.stats.proof import compare
from autotune.trial.parent.trial_bench import TrialBench
from autotune.trial.target import recognise
from autotune.tuning.host_runner import open_runner
from benchmarks import quality, stamp

FREE = ("processes", "threads", "backend", "binding", "num_workers", "batch_size")
FIELD = 4
"""Settings of one process, and of several, that take part in the final measurement."""


def main() -> None:
    """Measure one task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", type=Path)
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--generations", type=int, default=4)
    arguments = parser.parse_args()
    baseline, rates = everything(arguments.task)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.yaml"
        only = [word for knob in ("processes", "binding", "num_workers") for word in ("--only", knob)]
        quality.tune(arguments.task, path, arguments.budget, *only)
        found = profiles.read(path).level("safe")
    contenders = {BASELINE: baseline, "found": found.settings, **field("one", rates), **field("several", rates)}
    rounds = quality.side_by_side(arguments.task, contenders, arguments.generations)
    gains = {name: compare(rounds, name, BASELINE) for name in contenders if name != BASELINE}
    for name, gain in gains.items():
        settings = contenders[name]
        shape = f"{settings.processes} x {settings.threads} threads, {settings.num_workers} workers"
        exchange = f", {settings.backend}" if settings.backend else ""
        print(f"{name}: {gain.value:.2f}x ({gain.low:.2f} to {gain.high:.2f})  {shape}{exchange}, {settings.binding}")
    best = max((name for name in gains if name != "found"), key=lambda name: gains[name].value)
    ratio = compare(rounds, "found", best) if contenders[best] != found.settings else None
    print(f"found / best ({best}): {ratio.value if ratio else 1.0:.3f}")
    stamp.write(
        f"processes-{arguments.task.stem}",
        {
            "settings_measured": len(rates),
            "claimed": found.speedup.as_dict(),
            "gains": {name: gain.as_dict() for name, gain in gains.items()},
            "best": best,
            "found_to_best": round(ratio.value if ratio else 1.0, 3),
            "settings": {name: settings.as_dict() for name, settings in contenders.items()},
        },
    )


def everything(task: Path) -> tuple[Settings, dict[Settings, float]]:
    """The user's settings, and the rate of every way to divide the cores, in items per second by one trial each."""
    inventory = probe()
    with open_runner(recognise(task), inventory, 0, 600.0) as runner:
        facts = runner.describe()
        baseline = baseline_settings(facts, inventory)
        fixed = {name: value for name, value in baseline.as_dict().items() if name not in FREE} | {"prefetch_factor": 2}
        space = build(Context(inventory, facts, baseline, None, {}), "safe", fixed)
        bench, rates = TrialBench(runner, baseline), dict[Settings, float]()
        for settings in dict.fromkeys((baseline, *space.enumerate())):
            outcome = bench.measure(settings, 0.0, time.monotonic() + 120)
            if isinstance(outcome, Completed) and outcome.measurement is not None:
                rates[settings] = outcome.measurement.rate
    return baseline, rates


def field(kind: str, rates: Mapping[Settings, float]) -> dict[str, Settings]:
    """The best of one process or of several, by name."""
    own = [settings for settings in rates if (settings.processes > 1) == (kind == "several")]
    ranked = sorted(own, key=lambda settings: -rates[settings])
    return {f"{kind} {place}": settings for place, settings in enumerate(ranked[:FIELD], 1)}


if __name__ == "__main__":
    main()
