"""The figures in `docs/decisions`, measured again on this machine.

    python docs/measure.py proof|compile|bound|isolation|reading [--pairs 10]

Where two things are compared they take turns, and the figure is the median of the pairs' ratios. Timed trials hold the
machine-wide lock, so that no tuning run disturbs them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from autotune.knobs.binding import VARIABLE, AffinityPlan
from autotune.knobs.change import Affinity
from autotune.knobs.settings import Settings
from autotune.launch.command import BINDER
from autotune.profiles import file
from autotune.stats.measurement import Measurement
from autotune.stats.proof import ANALYSES, CONFIDENCE, MIN_GAIN, Round, compare, student_quantile
from autotune.trial.isolation import overlays, redirected
from autotune.trial.isolation.isolate import isolate
from autotune.trial.messages import TrialReport, TrialSpec
from autotune.trial.parent.fork_servers import TrialSetup, trial_environment
from autotune.trial.parent.runner import Runner, Timeouts
from autotune.trial.paths import StudyPaths
from autotune.tuning import runner as lock
from autotune.tuning.schedule import ROUNDS
from tests.doubles.proven_profile import profile

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
TASK = EXAMPLES / "tabular_mlp.py"
PATIENT = Timeouts(starting=300.0, compiling=300.0, stepping=300.0)
SETTINGS = Settings(threads=os.cpu_count() or 1, interop_threads=1, batch_size=32)


@contextlib.contextmanager
def runner(task: Path) -> Iterator[Runner]:
    paths = StudyPaths.create()
    environment = trial_environment(os.environ, paths, threads=os.cpu_count() or 1, memory=8 * 2**30)
    with Runner(TrialSetup(task, paths, lambda _allocator: environment, Path.cwd())) as running:
        running.warm()
        yield running


def compiled(pairs: int) -> None:
    """Decision 005: from the request to the end of the first step, compiled (with a cold cache) and not."""
    taken: dict[str, list[float]] = {"off": [], "default": []}
    rates: dict[str, list[float]] = {"off": [], "default": []}
    for _ in range(pairs):
        for mode in random.sample(sorted(taken), 2):
            with runner(EXAMPLES / "char_transformer.py") as running:
                end = running.run(TrialSpec(settings=SETTINGS.but(compile=mode)), PATIENT)
                rates[mode].append(measured(end.report).rate)
                taken[mode].append(end.start_seconds)
    report("s to the first step", taken, "default", "off")
    report("samples/s", rates, "default", "off")


def measured(found: TrialReport | None) -> Measurement:
    assert found is not None
    assert found.measurement is not None, found.traceback
    return found.measurement


def timed(call: Callable[[], None], count: int) -> float:
    started = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - started) / count


def proof(trials: int) -> None:
    """Decision 002: how often a gain is claimed where there is none.

    Each generation of processes is off by some percent (layout), each round by another 3 %, both normal on the log
    scale. The plain way is a t-interval over all rounds, looked at after every generation. The last figure is of a
    budget that ended after two generations.
    """
    for spread in (0.02, 0.05, 0.10, 0.20):
        dice = random.Random(0)
        ours = plain = short = 0
        for _ in range(trials):
            rounds: list[Round] = []
            ended = hasty = claimed = False
            for generation in range(1, max(ANALYSES) + 1):
                bias = dice.gauss(0.0, spread)
                noisy = [math.exp(bias + dice.gauss(0.0, 0.03)) for _ in range(ROUNDS)]
                rounds += [Round(generation, {"new": rate, "old": 1.0}) for rate in noisy]
                hasty |= plain_low(rounds) > math.log(MIN_GAIN)
                if generation in ANALYSES and not ended:
                    look = compare(rounds, "new", "old", final=generation == max(ANALYSES))
                    ended, claimed = not look.undecided, look.gain
                if generation == 2:
                    short += compare(rounds, "new", "old").gain
            plain += hasty
            ours += claimed
        figures = f"ours {ours / trials:.2%}, plain {plain / trials:.2%}, ours of two generations {short / trials:.2%}"
        print(f"false claims in {trials} proofs, generations off by {spread:.0%}: {figures}")


def bound(pairs: int) -> None:
    """Decision 006: from the start to the end of a Python that does nothing, behind the starter and by itself."""
    plan = AffinityPlan((0,), (Affinity(tuple(os.sched_getaffinity(0)), (0,)),))
    program = [sys.executable, "-c", "pass"]
    commands = {"bound": [sys.executable, *BINDER, *program], "plain": program}
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(pairs):
        for name in random.sample(sorted(commands), 2):
            before = time.perf_counter()
            subprocess.run(commands[name], env=os.environ | {VARIABLE: plan.text}, check=True)
            taken[name].append(time.perf_counter() - before)
    report("s", taken, "bound", "plain")


def isolation(pairs: int) -> None:
    """Decision 016: milliseconds until the user's world is out of reach, once for the script and for each trial, with
    their CPU time; and milliseconds to open and read 1000 files of 8 KiB, outside and in a trial."""
    with tempfile.TemporaryDirectory() as folder:
        origin = Path(folder, "origin")
        origin.mkdir()
        (origin / "sample").write_bytes(bytes(8192))
        for way in (overlays, redirected):
            taken: dict[str, list[float]] = {}
            for number in range(pairs):
                scratch = Path(folder, f"{way.NAME}-{number}")
                scratch.mkdir()
                for step, milliseconds in _isolated(way, scratch, origin).items():
                    taken.setdefault(step, []).append(milliseconds)
            for step, found in taken.items():
                middle = statistics.median(found)
                print(f"{way.NAME}, {step}: median {middle:.3g} ms ({min(found):.3g} to {max(found):.3g})")


def _isolated(way: ModuleType, scratch: Path, origin: Path) -> dict[str, float]:
    """Milliseconds of each step, in a child; empty where the way is not permitted."""
    read_end, write_end = os.pipe()
    if not (pid := os.fork()):
        with contextlib.suppress(OSError):
            os.chdir(origin)
            read = (origin / "sample").read_bytes
            found = {"1000 files outside": timed(read, 1000) * 1e6}
            wall, busy = time.perf_counter(), time.process_time()
            if way is not overlays:
                overlays.enter = _refused
            taken = isolate(scratch)
            if taken.way != way.NAME:
                os._exit(0)
            found |= {"script": _since(wall), "script, CPU": (time.process_time() - busy) * 1e3}
            if not (trial := os.fork()):
                wall, busy = time.perf_counter(), time.process_time()
                taken.nest(scratch / "t1")
                found |= {"trial": _since(wall), "trial, CPU": (time.process_time() - busy) * 1e3}
                found["1000 files in a trial"] = timed(read, 1000) * 1e6
                os.write(write_end, json.dumps(found).encode())
                os._exit(0)
            os.waitpid(trial, 0)
        os._exit(0)
    os.close(write_end)
    with open(read_end) as said:
        text = said.read()
    os.waitpid(pid, 0)
    return dict(json.loads(text)) if text else {}


def _refused(*_: object) -> None:
    """Be a system without namespaces."""
    raise OSError("not tried")


def _since(start: float) -> float:
    return (time.perf_counter() - start) * 1e3


def plain_low(rounds: list[Round]) -> float:
    logs = [math.log(turn.rates["new"]) for turn in rounds]
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    return statistics.mean(logs) - student_quantile((1 + CONFIDENCE) / 2, len(logs) - 1) * error


def report(unit: str, values: dict[str, list[float]], upper: str, lower: str) -> None:
    for name, found in values.items():
        print(f"{name}: median {statistics.median(found):.4g} {unit} ({min(found):.4g} to {max(found):.4g})")
    ratios = sorted(a / b for a, b in zip(values[upper], values[lower], strict=True))
    print(f"{upper} / {lower}: median {statistics.median(ratios):.3g} ({ratios[0]:.3g} to {ratios[-1]:.3g})")


def reading(pairs: int) -> None:
    """Decision 022: whole processes that read one profile, and that only import what any process of ours does."""
    plain = "import autotune.knobs.settings, autotune.stats.proof, yaml, platformdirs"
    seconds: dict[str, list[float]] = {"plain": [], "reading": []}
    with tempfile.TemporaryDirectory() as folder:
        path = file.write(Path(folder) / "p.yaml", profile(SETTINGS))
        code = {"plain": plain, "reading": f"{plain}; from autotune.profiles import file; file.read({str(path)!r})"}
        for _ in range(pairs):
            for name in random.sample(sorted(code), 2):
                began = time.perf_counter()
                subprocess.run([sys.executable, "-c", code[name]], check=True)
                seconds[name].append(1e3 * (time.perf_counter() - began))
    report("ms", seconds, "reading", "plain")


FIGURES = {
    "proof": proof,
    "compile": compiled,
    "bound": bound,
    "isolation": isolation,
    "reading": reading,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", choices=FIGURES)
    parser.add_argument("--pairs", type=int, default=10)
    arguments = parser.parse_args()
    if arguments.figure == "proof":
        proof(max(arguments.pairs, 1000))
        return
    with lock.acquire(600.0, lambda: print("waiting for another run")):
        FIGURES[arguments.figure](arguments.pairs)


if __name__ == "__main__":
    main()
