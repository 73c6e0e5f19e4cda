"""Steps to the same loss with larger batches, against what the gradient noise scale predicts.

    python -m benchmarks.progress [TASK ...] [--batches 2,4,8,16] [--seconds 20]

Each task of ``examples/`` is trained in plain PyTorch with its own batch and optimizer for about ``--seconds``. The
loss of samples that were kept back, two thirds of the way, is the goal of all runs. Larger batches train with the
learning rate times the square root of the factor, with SGD times the factor, two seeds each. The noise scale is
measured as `autotune tune` does. The time to the loss, needed and predicted, is the number of steps times the time of
a step, against the task's own batch: below 1, the larger batch is faster. A false promise is a larger batch that is
predicted to be faster and is not.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils.data import default_collate

from autotune.knobs.knob import progress
from autotune.knobs.stated import baseline_settings
from autotune.probes.inventory import probe
from autotune.trial.parent.trial_bench import TrialBench
from autotune.trial.target import recognise
from autotune.tuning.run import NOISE_SCALE_BY, NOISE_SECONDS
from autotune.tuning.runner import open_runner
from benchmarks import stamp
from benchmarks.plain.training import load

TASKS = ("tabular_mlp", "lstm_forecast", "recommender", "char_transformer", "jpeg_folder")
KEPT_BACK, MOST_KEPT = 6, 256
"""One of so many samples, and so many at most, are not trained on."""
LOOKS = 120
"""Times that a run is looked at."""
SEEDS = (0, 1)
TURNS, TURN_SECONDS = 4, 0.3
"""In which the time of a step is measured."""


def main(arguments: argparse.Namespace) -> None:
    """Measure each task and print a table."""
    rows: list[dict[str, Any]] = []
    for name in arguments.tasks:
        task = Path("examples", f"{name}.py")
        scale = noise_scale(task)
        print(f"{name}: noise scale {scale}", flush=True)
        for row in steps_needed(load(str(task)), arguments.seconds, arguments.batches, scale):
            rows.append({"task": name, "noise scale": scale, **row})
            print(rows[-1], flush=True)
            stamp.write("progress", {"rows": rows})
    print(stamp.table(rows))
    false = sum(row["time predicted"] < 1 <= row["time needed"] for row in rows)
    near = sum(0.75 <= row["predicted"] / row["needed"] <= 1.25 for row in rows)
    print(f"{near} of {len(rows)} predictions within 25 %; {false} false promises")


def noise_scale(task: Path) -> float | None:
    """Return the noise scale as a run finds it, in batches."""
    inventory = probe()
    with open_runner(recognise(task), inventory, 0, NOISE_SECONDS) as runner:
        own = baseline_settings(runner.describe(), inventory)
        bench = TrialBench(runner, own)
        bench.measure(own, 0.0, time.monotonic() + 60)
        found = bench.inspect(own, NOISE_SCALE_BY, NOISE_SECONDS)[1].get("noise_scale")
    return None if found is None else float(found)


def steps_needed(task: ModuleType, seconds: float, factors: list[int], scale: float | None) -> Iterator[dict[str, Any]]:
    """Yield a row for each factor of the task's batch: steps needed against the batch itself, and predicted."""
    samples = list(task.build_dataset())
    order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(0)).tolist()
    kept = min(MOST_KEPT, len(samples) // KEPT_BACK)
    training = Training(task, [samples[i] for i in order[kept:]], [samples[i] for i in order[:kept]])
    steps = training.steps_in(seconds)
    losses = training.run(1, steps, 0)
    goal = min(loss for step, loss in losses.items() if step <= 2 * steps / 3)
    own = statistics.fmean(training.run_to(goal, 1, 2 * steps, seed) for seed in SEEDS)
    paces = training.paces((1, *factors))
    for factor in factors:
        needed = statistics.fmean(training.run_to(goal, factor, 2 * steps, seed) for seed in SEEDS) / own
        predicted = math.nan if scale is None else 1 / (factor * progress(factor, scale))
        pace = paces[factor] / paces[1]
        yield {
            "batch": f"{factor}x",
            "needed": round(needed, 3),
            "predicted": round(predicted, 3),
            "time needed": round(needed * pace, 3),
            "time predicted": round(predicted * pace, 3),
        }


class Training:
    """Trains a task in plain PyTorch.

    Args:
        task: the task file.
        samples: to train on.
        kept: to find the loss of.
    """

    def __init__(self, task: ModuleType, samples: list[Any], kept: list[Any]) -> None:
        self.task, self.samples, self.batch = task, samples, task.CURRENT["batch_size"]
        self._collate = getattr(task, "collate_fn", None) or default_collate
        self._kept = [self._collate(kept[i : i + 256]) for i in range(0, len(kept), 256)]

    def steps_in(self, seconds: float) -> int:
        """Return how many steps with the task's own batch take ``seconds``."""
        began = time.perf_counter()
        made = itertools.takewhile(lambda _: time.perf_counter() - began < seconds / 5, self._steps(1, 0))
        return max(LOOKS, 5 * sum(1 for _ in made))

    def paces(self, factors: Sequence[int]) -> dict[int, float]:
        """Return the least seconds of a step at each factor of the batch, measured in turns."""
        found = dict.fromkeys(factors, math.inf)
        loops = {factor: self._steps(factor, 0) for factor in factors}
        for _turn in range(TURNS):
            for factor, loop in loops.items():
                next(loop)  # caches went cold
                began, made = time.perf_counter(), 0
                while time.perf_counter() < began + TURN_SECONDS:
                    next(loop)
                    made += 1
                found[factor] = min(found[factor], (time.perf_counter() - began) / made)
        return found

    def run(self, factor: int, steps: int, seed: int, goal: float = -math.inf) -> dict[int, float]:
        """Return the loss after some of the ``steps``, up to the first that reaches ``goal``."""
        found: dict[int, float] = {}
        every = max(1, steps // LOOKS // factor)
        for step, model in enumerate(self._steps(factor, seed), 1):
            if step % every == 0:
                model.eval()
                with torch.no_grad():
                    found[step] = statistics.fmean(float(self.task.compute_loss(model, batch)) for batch in self._kept)
                model.train()
                if found[step] <= goal or step >= steps:
                    break
        return found

    def run_to(self, goal: float, factor: int, steps: int, seed: int) -> float:
        """Return the steps that reach ``goal``; infinite if ``steps`` do not."""
        found = self.run(factor, steps, seed, goal)
        return max(found) if found[max(found)] <= goal else math.inf

    def _steps(self, factor: int, seed: int) -> Iterator[Any]:
        """Train on without end; yield the model after each step."""
        torch.manual_seed(seed)
        model = self.task.build_model()
        if hasattr(self.task, "build_optimizer"):
            optimizer = self.task.build_optimizer(model.parameters())
        else:
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for group in optimizer.param_groups:
            group["lr"] *= factor if isinstance(optimizer, torch.optim.SGD) else math.sqrt(factor)
        size = factor * self.batch
        while True:
            order = torch.randperm(len(self.samples)).tolist()
            for start in range(0, len(order) - size + 1, size):
                optimizer.zero_grad()
                batch = self._collate([self.samples[i] for i in order[start : start + size]])
                self.task.compute_loss(model, batch).backward()
                optimizer.step()
                yield model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=TASKS)
    parser.add_argument("--batches", type=lambda text: [int(each) for each in text.split(",")], default=[2, 4, 8, 16])
    parser.add_argument("--seconds", type=float, default=20.0)
    main(parser.parse_args())
