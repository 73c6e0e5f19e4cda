"""How long a trial takes from the request to the end of its first training step, and what the parent spends meanwhile.

    python -m benchmarks.trial_start [--trials 20] [--prologue SECONDS]

Compared in one run, in turn: a trial forked from the fork server, and a fresh Python that imports torch and takes one
step of the same model. With ``--prologue``, a script that sleeps for so long before it trains: forked at its fork
point, and run from its start because it has a thread of its own. Prints one JSON object with medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from autotune.knobs.settings import Settings
from autotune.knobs.stated import baseline_settings
from autotune.probes.inventory import probe
from autotune.trial.messages import TrialSpec
from autotune.trial.parent.fork_servers import TrialSetup, trial_environment
from autotune.trial.parent.runner import Runner, Timeouts
from autotune.trial.paths import StudyPaths
from autotune.trial.target import NEW_TASK, recognise_target
from autotune.tuning.runner import open_runner

FRESH = """
import torch, model
from torch.utils.data import DataLoader
torch.set_num_threads(1)
net = model.build_model()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for batch in DataLoader(model.build_dataset(), batch_size=64, shuffle=True):
    model.compute_loss(net, batch).backward()
    optimizer.step()
    break
"""
SCRIPT = """
import threading, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

if {thread}:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
time.sleep({prologue})
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for inputs, targets in DataLoader(TensorDataset(torch.randn(400_000, 4), torch.randn(400_000, 1)), batch_size=4):
    nn.functional.mse_loss(model(inputs), targets).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
PATIENT = Timeouts(starting=300.0, compiling=300.0, stepping=300.0)


def main() -> None:
    """Measure the task file, or the scripts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--prologue", type=float, help="of a script, in seconds")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.prologue is None:
            (folder / "model.py").write_text(NEW_TASK)
            found = task_file(folder, arguments.trials)
        else:
            found = {
                name: script(folder, arguments.prologue, thread, arguments.trials)
                for name, thread in (("forked_start_s", False), ("from_its_start_s", True))
            }
        print(json.dumps(found, indent=2))


def task_file(folder: Path, trials: int) -> dict[str, float]:
    """Return medians over ``trials`` pairs, in seconds, and the parent's CPU share over all trials."""
    paths = StudyPaths.create()
    forked: list[float] = []
    fresh: list[float] = []
    wall = cpu = 0.0

    def environment(_: Settings) -> dict[str, str]:
        return trial_environment(os.environ, paths, threads=2, memory=2**33)

    with Runner(TrialSetup(folder / "model.py", paths, environment, folder)) as runner:
        runner.warm()
        for _ in range(trials):
            started, used = time.monotonic(), time.process_time()
            end = runner.run(TrialSpec(settings=Settings(threads=1, batch_size=64)), Timeouts())
            wall, cpu = wall + time.monotonic() - started, cpu + time.process_time() - used
            forked.append(end.start_seconds)
            started = time.monotonic()
            subprocess.run([sys.executable, "-c", FRESH], cwd=folder, check=True)
            fresh.append(time.monotonic() - started)
    return {
        "forked_start_s": round(statistics.median(forked), 4),
        "forked_start_worst_s": round(max(forked), 4),
        "fresh_start_s": round(statistics.median(fresh), 3),
        "ratio": round(statistics.median(b / a for a, b in zip(forked, fresh, strict=True)), 1),
        "parent_cpu_share": round(cpu / wall, 5),
    }


def script(folder: Path, prologue: float, thread: bool, trials: int) -> float:
    """Return the median seconds until a trial of a script has made its first step."""
    path = folder / "train.py"
    path.write_text(SCRIPT.format(prologue=prologue, thread=thread))
    with open_runner(recognise_target(str(path)), inventory := probe(), 0, 600.0) as runner:
        settings = baseline_settings(runner.describe(), inventory)
        spec = TrialSpec(settings=settings, min_seconds=0.0, max_seconds=0.1)
        return round(statistics.median(runner.run(spec, PATIENT).start_seconds for _ in range(trials)), 3)


if __name__ == "__main__":
    main()
