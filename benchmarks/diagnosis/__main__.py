"""Eight scripts with one bottleneck each: is the diagnosis right, and does its advice help as much as it says at most?

    python -m benchmarks.diagnosis [CASE ...] [--pairs 3] [--budget 20s] [--beside 1]

Each case of `train.py` is diagnosed, and then trained as it is and with the advice followed, in turns, as whole
processes. The bound holds if the gain is not above the upper end of its interval. ``--beside N`` keeps N processes busy
meanwhile: if the answer is then that fewer threads are faster, that is the advice, and right if it helps.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autotune.commands.diagnose import measure
from autotune.diagnosis.passes import BANDWIDTH, OVERHEAD
from autotune.diagnosis.verdict import DISK, KINDS, MAIN_PROCESS, SLOW_SOURCE, THREADS
from autotune.trial.parts import EXCHANGE, LOADER, UPDATE

from autotune.inspect.verdict import Bound
from autotune.knobs.baseline import baseline_settings
from autotune.probes.inventory import probe
from autotune.report.diagnosis import bound
from autotune.stats.outcome import Completed
from autotune.trial.parent.trial_bench import TrialBench
from autotune.trial.target import recognise_target
from autotune.tuning.events import ignore
from autotune.tuning.host_runner import open_runner

SCRIPT = str(Path(__file__).with_name("train.py"))
TRUTH = {
    "slow_dataset": (Bound.SLOW_SOURCE, "loader", "__getitem__"),
    "tiny_kernels": (Bound.OVERHEAD, "overhead", ""),
    "threads": (Bound.THREADS, "threads", ""),
    "update": (Bound.UPDATE, "update", ""),
    "item": (Bound.LOOP, "loop", "confidences"),
    "logging": (Bound.LOOP, "loop", "log_metrics"),
    "validation": (Bound.LOOP, "loop", "validate"),
    "memory": (Bound.BANDWIDTH, "overhead", ""),
}
ENDLESS = ("--seconds", "1e9")
"""Case -> its verdict, the part whose bound counts, and the user's function that the verdict names."""


@contextlib.contextmanager
def neighbours(count: int) -> Iterator[None]:
    """So many processes that keep a CPU busy."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def busy_seconds() -> tuple[float, float]:
    """CPU time of all processes of this machine, and of those that this one has started, so far."""
    with open("/proc/stat") as file:
        ticks = sum(map(int, file.readline().split()[1:4]))
    return ticks / os.sysconf("SC_CLK_TCK"), sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def rate(folder: str, *arguments: str) -> float:
    """Samples per second of a whole training process."""
    done = subprocess.run([sys.executable, SCRIPT, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


def judge(case: str, pairs: int, budget: str) -> dict[str, Any]:
    """The diagnosis of ``case``, and what its advice really brought."""
    bound, part, function = TRUTH[case]
    (all_before, own_before), began = busy_seconds(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "autotune.cli",
            "diagnose",
            "--json",
            "--budget",
            budget,
            SCRIPT,
            case,
            *ENDLESS,
        ]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        seconds = time.monotonic() - began
        if done.returncode:
            return {"case": case, "verdict": done.stderr.strip().splitlines()[-1], "right": False, "seconds": seconds}
        found = json.loads(done.stdout)
        threads = found["verdict"] == Bound.THREADS.value
        advice = ["--threads", str(found["threads"])] if threads else ["--advised"]
        gains = [rate(folder, case, *advice) / rate(folder, case) for _ in range(pairs)]
    all_now, own_now = busy_seconds()
    others = (all_now - all_before - (own_now - own_before)) / (time.monotonic() - began)
    gain = statistics.median(gains)
    limits = found["bounds"].get("threads" if threads else part, {"low": 0.0, "value": 1.0, "high": math.inf})
    named = found["inspection"]["places"].get(part, {}).get("function", "")
    return {
        "case": case,
        "verdict": found["verdict"],
        "right": (found["verdict"] == bound.value and function in ("", named)) or (threads and gain > 1),
        "cannot tell": found["verdict"] == Bound.UNKNOWN.value,
        "bound": {name: round(limits[name], 2) for name in ("value", "low", "high")},
        "gains": [round(gain, 2) for gain in gains],
        "holds": gain <= limits["high"],
        "helps": gain > 1,
        "others": round(others, 2),
        "seconds": round(seconds, 1),
    }


def main() -> None:
    """Print one JSON line a case, and the score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(TRUTH))
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--budget", default="20s")
    parser.add_argument("--beside", type=int, default=0)
    options = parser.parse_args()
    results = []
    with neighbours(options.beside):
        for case in options.cases:
            results.append(judge(case, options.pairs, options.budget))
            print(json.dumps(results[-1]), flush=True)
    scores = {
        name: sum(bool(each.get(name)) for each in results) for name in ("right", "cannot tell", "holds", "helps")
    }
    print(f"of {len(results)}: " + ", ".join(f"{name} {count}" for name, count in scores.items()))


if __name__ == "__main__":
    main()
