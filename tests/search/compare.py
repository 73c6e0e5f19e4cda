"""Quality and cost of search methods on the simulated machines: ``python -m tests.search.compare``.

Quality is the true rate of what would be recommended (the better of the first finalist and the baseline: the proof
sees to that) relative to the machine's optimum.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna

from autotune.core.settings import KNOB_NAMES, Settings
from autotune.core.space import Space
from autotune.search.protocol import Observation
from autotune.search.staged import Planner, finalists
from tests.search import machines
from tests.search.simulator import Bench, Machine


@dataclass
class Run:
    """One search: its observations, simulated seconds after each, and the slowest proposal."""

    history: list[Observation]
    clock: list[float]
    slowest: float = 0.0


def staged(bench: Bench, level: str, trials: int) -> Run:
    """Our own search."""
    machine, run = bench.machine, Run([], [])
    planner = Planner(machine.space(level), machine.context.baseline, bench.seed, noise=0.03)
    while len(run.history) < trials:
        began = time.perf_counter()
        proposal = planner.propose(run.history)
        run.slowest = max(run.slowest, time.perf_counter() - began)
        if proposal is None:
            break
        run.history.append(Observation(proposal.settings, bench.run(proposal.settings), level))
        run.clock.append(bench.seconds)
    return run


def tpe(bench: Bench, level: str, trials: int) -> Run:
    """Optuna's default sampler; infeasible draws cost it nothing."""
    return _plain(bench, level, trials, optuna.samplers.TPESampler(seed=bench.seed))


def random(bench: Bench, level: str, trials: int) -> Run:
    """Uniform draws among feasible settings; the baseline first."""
    return _plain(bench, level, trials, optuna.samplers.RandomSampler(seed=bench.seed))


def _plain(bench: Bench, level: str, trials: int, sampler: optuna.samplers.BaseSampler) -> Run:
    space, run, seen = bench.machine.space(level), Run([], []), set[Settings]()
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.enqueue_trial({k: v for k, v in bench.machine.context.baseline.as_dict().items() if v is not None})
    for _ in range(100 * trials):
        trial = study.ask()
        settings = _drawn(space, trial)
        if settings is None or settings in seen:
            study.tell(trial, 0.0)
            continue
        seen.add(settings)
        observation = Observation(settings, bench.run(settings), level)
        study.tell(trial, observation.rate or 0.0)
        run.history.append(observation)
        run.clock.append(bench.seconds)
        if len(run.history) == trials:
            break
    return run


def _drawn(space: Space, trial: optuna.Trial) -> Settings | None:
    values: dict[str, Any] = {
        name: trial.suggest_categorical(name, space.values[name])
        for name in KNOB_NAMES
        if name not in ("batch_size", "backend", "prefetch_factor", "persistent_workers")
    }
    if values["num_workers"]:
        for name in ("prefetch_factor", "persistent_workers"):
            values[name] = trial.suggest_categorical(name, space.values[name])
    batch, shares = trial.suggest_categorical("global_batch", space.global_batches), 0
    shares = values["processes"] * values["accumulation"]
    if batch % shares:
        return None
    settings = Settings(**values, batch_size=batch // shares, backend=space.values["backend"][0])
    return settings if settings in space else None


def quality(machine: Machine, level: str, history: Sequence[Observation]) -> float:
    """Share of the optimum's rate that the recommendation would reach."""
    chosen = finalists(history, machine.space(level), 1) if any(o.rate for o in history) else ()
    return max(machine.rate(s) for s in (*chosen, machine.context.baseline)) / machine.optimum(level)


Method = Callable[[Bench, str, int], Run]
METHODS: dict[str, Method] = {"staged": staged, "tpe": tpe, "random": random}


def row(
    label: str, tasks: Sequence[tuple[Machine, str, int]], marks: Sequence[int], method: Method, noise: float
) -> str:
    """One line of the table: medians (tenth percentile) after each number of trials."""
    runs = [(m, level, method(Bench(m, seed, noise=noise), level, marks[-1])) for m, level, seed in tasks]
    cells = []
    for mark in marks:
        found = [quality(m, level, run.history[:mark]) for m, level, run in runs]
        cells.append(f"{statistics.median(found):.3f} ({np.quantile(found, 0.1):.3f})")
    trials = statistics.median(len(run.history) for _, _, run in runs)
    seconds = statistics.median(run.clock[-1] for _, _, run in runs)
    slowest = max(run.slowest for _, _, run in runs)
    return f"{label:24} {'  '.join(cells)}  {trials:.0f} trials, {seconds:.0f} s, ask <= {slowest * 1e3:.0f} ms"


def main() -> None:
    """Print the table."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=15)
    parser.add_argument("--methods", default="staged")
    parser.add_argument("--noise", type=float, default=0.02)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    seeds = range(arguments.seeds)
    named = [(make(), level) for make in machines.SMALL for level in ("safe", "amp")]
    named = [(m, level) for m, level in named if level == "safe" or m.name in ("conv", "transformer")]
    named += [(machines.big(), level) for level in ("safe", "amp", "max")]
    tasks = {f"{m.name} {level}": [(m, level, seed) for seed in seeds] for m, level in named}
    tasks["anywhere safe"] = [(machines.anywhere(seed), "safe", seed) for seed in range(4 * arguments.seeds)]
    tasks["anywhere amp"] = [(machines.anywhere(seed), "amp", seed) for seed in range(4 * arguments.seeds)]
    for label, group in tasks.items():
        if arguments.only not in label:
            continue
        marks = (8, 16, 25, 40) if label.startswith("big") else (8, 12, 16, 25)
        for name in arguments.methods.split(","):
            print(row(f"{label} {name}", group, marks, METHODS[name], arguments.noise), flush=True)


if __name__ == "__main__":
    main()
