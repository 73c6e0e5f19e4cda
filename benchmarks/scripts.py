"""What unmodified scripts pay: the start of a trial, of `autotune run`, and each training step.

    python -m benchmarks.scripts [--prologue 30] [--pairs 5]

*Trials*: seconds from the request to the end of the first step, of a script that sleeps for ``--prologue`` seconds
before it trains: forked where it trains, and run from its start because it has a thread of its own. *Start*: wall time
of a script of five steps under ``autotune run`` less that under ``python``, in turns, where the profile changes nothing
and where it is applied. Unset ``PYTHONDONTWRITEBYTECODE``: users have bytecode. *Step*: CPU microseconds of a
step of a tiny model with the watch installed and the user's own settings in force less those of the bare loop, in turns
in one process.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from autotune.script.tuned import BATCHES, Tuned
from autotune.script.watch import Watch

from autotune.knobs.baseline import baseline_settings
from autotune.knobs.settings import Settings
from autotune.probes.inventory import probe
from autotune.profiles import file as profiles
from autotune.profiles.format import Target
from autotune.profiles.machine import machine_type, versions
from autotune.runtime.session import Session
from autotune.trial.messages import TrialSpec
from autotune.trial.parent.running_trial import Timeouts
from autotune.trial.target import recognise_target
from autotune.tuning.host_runner import open_runner
from benchmarks.runtime_overhead import bare
from benchmarks.simulation.profiles import profile

SCRIPT = """
import sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

{extra}
time.sleep({prologue})
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(torch.randn({samples}, 4), torch.randn({samples}, 1)), batch_size=4)
for inputs, targets in loader:
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
THREAD = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"
PATIENT = Timeouts(starting=300.0, compiling=300.0, stepping=300.0)
STEPS = 200


def write(folder: Path, *, prologue: float = 0.0, extra: str = "", steps: int = 100_000) -> Path:
    """A script in ``folder``."""
    path = folder / "train.py"
    path.write_text(SCRIPT.format(prologue=prologue, extra=extra, samples=4 * steps))
    return path


def trials(prologue: float, pairs: int) -> None:
    """Seconds until a trial has made its first step."""
    for name, extra in (("forked where it trains", ""), ("run from its start", THREAD)):
        with tempfile.TemporaryDirectory() as folder:
            target = recognise_target(str(write(Path(folder), prologue=prologue, extra=extra)))
            with open_runner(target, inventory := probe(), 0, 600.0) as runner:
                begun = time.monotonic()
                settings = baseline_settings(runner.describe(), inventory)
                print(f"{name}: {time.monotonic() - begun:.1f} s until the script trains, once")
                spec = TrialSpec(settings=settings, min_seconds=0.0, max_seconds=0.1)
                _print("seconds of a trial's start", [runner.run(spec, PATIENT).start_seconds for _ in range(pairs)])


def starts(pairs: int) -> None:
    """Seconds that ``autotune run`` adds to a short script."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        script = write(folder, steps=5)
        plain = [sys.executable, str(script)]
        tuned = {name: _started(_profile(folder, name), script) for name in ("nothing to apply", "applied")}
        added: dict[str, list[float]] = {name: [] for name in tuned}
        for command in (plain, *tuned.values()):
            _wall(command)  # bytecode and file caches are there then
        for _ in range(pairs):
            bare = _wall(plain)
            for name, command in tuned.items():
                added[name].append(_wall(command) - bare)
        for name, seconds in added.items():
            _print(f"seconds that autotune run adds, {name}", seconds)


def _started(profile: Path, script: Path) -> list[str]:
    return [sys.executable, "-m", "autotune.cli", "run", "--profile", str(profile), str(script)]


def _profile(folder: Path, name: str) -> Path:
    """A profile of this machine with the settings that the script has by itself. Where nothing is to be applied, these
    are its baseline too."""
    inventory = probe()
    own = Settings(threads=inventory.budget.threads, interop_threads=torch.get_num_interop_threads(), batch_size=4)
    baseline = own if name == "nothing to apply" else own.but(num_workers=1)
    target = Target("train", "samples", "cpu", 5, 20, script=BATCHES)
    made = profile(own, machine=machine_type(inventory))
    found = replace(made, target=target, baseline=baseline, software=versions(inventory))
    return profiles.write(folder / f"{name}.yaml", found)


def _wall(command: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, check=True, env=os.environ, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begun


def steps(rounds: int) -> None:
    """Microseconds that a step of a watched script takes longer."""
    torch.set_num_threads(1)
    watch = Watch()
    own = Settings(threads=1, interop_threads=torch.get_num_interop_threads(), batch_size=4)
    watch.watcher = Tuned(watch, lambda: Session(own, device="cpu", moves=False))
    plain = bare(STEPS)
    watch.install(losses=False)
    tuned = bare(STEPS)
    tuned()
    differences = []
    for _ in range(rounds):
        order = [plain, tuned]
        random.shuffle(order)
        taken = {id(epoch): _busy(epoch) for epoch in order}
        differences.append((taken[id(tuned)] - taken[id(plain)]) / STEPS * 1e6)
    watch.remove()
    _print("microseconds of CPU that a step takes longer", differences)


def _busy(work: Callable[[], None]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def _print(what: str, values: list[float]) -> None:
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    print(f"  {what}: median {middle:.3g} (quartiles {low:.3g} to {high:.3g}, {len(values)} times)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prologue", type=float, default=30.0)
    parser.add_argument("--pairs", type=int, default=5)
    arguments = parser.parse_args()
    steps(20 * arguments.pairs)
    starts(arguments.pairs)
    trials(arguments.prologue, arguments.pairs)


if __name__ == "__main__":
    main()
