"""How long a trial takes from request to the end of its first training step, and what the parent spends meanwhile.

    python -m benchmarks.trial_start [--trials 20]

Compared in one run, in turn: a trial forked from the zygote, and a fresh Python that imports torch and takes one step
of the same model.
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

from autotune.commands.init import TASK
from autotune.knobs.settings import Settings
from autotune.trial.messages import TrialSpec
from autotune.trial.parent.fork_servers import TrialSetup, trial_environment
from autotune.trial.parent.runner import Runner
from autotune.trial.parent.running_trial import Timeouts
from autotune.trial.paths import StudyPaths

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


def main() -> None:
    """Print one JSON object with medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    trials = parser.parse_args().trials
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "model.py").write_text(TASK)
        print(json.dumps(measure(folder, trials), indent=2))


def measure(folder: Path, trials: int) -> dict[str, float]:
    """Medians over ``trials`` pairs, in seconds; the parent's CPU share over all trials."""
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


if __name__ == "__main__":
    main()
