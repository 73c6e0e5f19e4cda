"""Unmodified scripts as a user meets them: how soon the answer comes, and whether ``autotune run`` is ever slower.

    python -m benchmarks.unmodified SCRIPT... [--pairs 4] [--budget 60s]
    python -m benchmarks.unmodified --task examples/tabular_mlp.py [--steps 300]

Each script is tuned from the shell; then whole processes, ``python SCRIPT`` and ``autotune run SCRIPT``, take turns in
random order. Printed are the seconds to the answer, the recommended claim, and the wall time of plain over tuned
(above 1 is a gain): geometric mean and Student's 95 % interval over the pairs. Start-up and evaluation are part of it.
``--task`` writes a plain script of the same training, and tunes both: the script's answer should not take longer.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from autotune.stats.student import student_quantile

SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
import torch
from torch.utils.data import DataLoader
import {module} as task

torch.manual_seed(0)
own = task.CURRENT
model, dataset = task.build_model(), task.build_dataset()
make = getattr(task, "build_optimizer", lambda parameters: torch.optim.AdamW(parameters, lr=1e-3))
optimizer = make(model.parameters())
loader = DataLoader(dataset, batch_size=own.get("batch_size", 32), num_workers=own.get("num_workers", 0), shuffle=True,
                    collate_fn=getattr(task, "collate_fn", None))
done = 0
while done < {steps}:
    for batch in loader:
        loss = task.compute_loss(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += 1
        if done == {steps}:
            break
print(f"loss {{loss.item():.4f}}")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", nargs="*", type=Path)
    parser.add_argument("--task", type=Path)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--budget", default="60s")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder, scripts = Path(place), [script.resolve() for script in arguments.scripts]
        if arguments.task:
            scripts.append(as_script(arguments.task.resolve(), arguments.steps, folder))
            seconds, _found = tune(arguments.task.resolve(), arguments.budget, folder)
            print(f"{arguments.task.name} as a task file: {seconds:.0f} s to the answer", flush=True)
        for script in scripts:
            report(script, arguments.budget, arguments.pairs, folder)


def as_script(task: Path, steps: int, folder: Path) -> Path:
    """A plain script that trains what ``task`` says for ``steps`` steps."""
    path = folder / f"{task.stem}_script.py"
    path.write_text(SCRIPT.format(folder=str(task.parent), module=task.stem, steps=steps))
    return path


def report(script: Path, budget: str, pairs: int, folder: Path) -> None:
    """Tune one script, and time it against itself."""
    seconds, found = tune(script, budget, folder)
    if isinstance(found, str):
        print(f"{script.name}: {seconds:.0f} s: {found}", flush=True)
        return
    level = found["levels"][found["recommended"]]
    claim = "{value:.2f}x ({low:.2f} to {high:.2f})".format(**level["speedup"])
    tuned = [sys.executable, "-m", "autotune.cli", "run", "--profile", found["path"], str(script)]
    logs = []
    for _ in range(pairs):
        lines = [[sys.executable, str(script)], tuned]
        random.shuffle(lines)
        taken = {line[1]: wall(line, folder) for line in lines}
        logs.append(math.log(taken[str(script)] / taken["-m"]))
    print(
        f"{script.name}: {seconds:.0f} s to {found['recommended']} {claim}; run over plain {interval(logs)}", flush=True
    )


def tune(target: Path, budget: str, folder: Path) -> tuple[float, dict[str, object] | str]:
    """Seconds to the answer, and the profile with its path, or the reason why there is none."""
    line = ["autotune.cli", "tune", "--budget", budget, "--profile", str(folder / f"{target.stem}.yaml"), "--json"]
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", *line, str(target)], cwd=folder, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - begun
    if done.returncode:
        return seconds, f"exit {done.returncode}: {done.stderr.strip().splitlines()[-1]}"
    return seconds, json.loads(done.stdout)


def wall(line: list[str], folder: Path) -> float:
    """Seconds of a whole process."""
    begun = time.perf_counter()
    subprocess.run(line, cwd=folder, check=True, env=os.environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begun


def interval(logs: list[float]) -> str:
    """Geometric mean with Student's 95 % interval."""
    mean = statistics.fmean(logs)
    half = student_quantile(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs)) if logs[1:] else 0.0
    return f"{math.exp(mean):.2f}x ({math.exp(mean - half):.2f} to {math.exp(mean + half):.2f}, {len(logs)} pairs)"


if __name__ == "__main__":
    main()
