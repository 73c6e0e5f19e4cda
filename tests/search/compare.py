"""Quality and cost of search methods on the simulated machines: ``python -m tests.search.compare``."""

from __future__ import annotations

import statistics
import sys
import time

import numpy as np
import optuna

from autotune.core.outcome import Outcome
from autotune.core.settings import Settings
from autotune.search.protocol import Observation
from autotune.search.staged import StagedSearch, finalists
from autotune.search.study import open_study
from tests.search import machines
from tests.search.simulator import Bench, Machine


def staged(machine: Machine, level: str, seed: int, trials: int, noise=0.02, drift=0.01):
    bench = Bench(machine, seed, noise=noise, drift=drift)
    search = StagedSearch(machine.space(level), open_study(), start=machine.context.baseline, seed=seed)
    slow = 0.0
    while len(search.history) < trials:
        t = time.perf_counter()
        p = search.ask()
        slow = max(slow, time.perf_counter() - t)
        if p is None:
            break
        search.tell(p, bench.run(p.settings))
    return search.history, bench.seconds, slow


def quality(machine, level, history, upto):
    space = machine.space(level)
    top = finalists(history[:upto], space, 1)
    base = machine.context.baseline
    rates = [machine.rate(s) for s in (*top, base)]
    # the race decides between finalist and baseline
    return max(rates) / machine.optimum(level)


def main(seeds: int = 20) -> None:
    which = [(m(), "safe") for m in machines.SMALL] + [
        (machines.conv(), "amp"),
        (machines.transformer(), "amp"),
        (machines.big(), "safe"),
        (machines.big(), "amp"),
        (machines.big(), "max"),
    ]
    for machine, level in which:
        marks = (8, 12, 16, 25) if machine.name != "big" else (8, 16, 25, 40)
        runs = [staged(machine, level, seed, marks[-1]) for seed in range(seeds)]
        q = [statistics.median(quality(machine, level, h, m) for h, _, _ in runs) for m in marks]
        w = [np.quantile([quality(machine, level, h, m) for h, _, _ in runs], 0.1) for m in marks]
        base = machine.rate(machine.context.baseline) / machine.optimum(level)
        n = statistics.median(len(h) for h, _, _ in runs)
        print(
            f"{machine.name:12} {level:5} base {base:.3f} median",
            " ".join(f"{x:.3f}" for x in q),
            " p10",
            " ".join(f"{x:.3f}" for x in w),
            f"n={n:.0f} s={statistics.median(s for _, s, _ in runs):.0f} ask={max(x for *_, x in runs) * 1e3:.0f}ms",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
