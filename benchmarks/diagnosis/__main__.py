"""Seven scripts with one bottleneck each: is the diagnosis right, and does its advice help as much as it says at most?

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
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from autotune.inspect.verdict import Bound
from autotune.report.diagnosis import DOUBTS
from benchmarks.neighbour import neighbour

SCRIPT = str(Path(__file__).with_name("train.py"))
TRUTH = {
    "slow_dataset": (Bound.SLOW_SOURCE, "loader", "__getitem__"),
    "tiny_kernels": (Bound.PASSES, "forward_backward", ""),
    "threads": (Bound.THREADS, "threads", ""),
    "update": (Bound.UPDATE, "optimizer", ""),
    "item": (Bound.LOOP, "loop", "confidences"),
    "logging": (Bound.LOOP, "loop", "log_metrics"),
    "validation": (Bound.LOOP, "loop", "validate"),
}
"""Case -> its verdict, the part whose bound counts, and the user's function that the verdict names."""
SCORES = ("right", "cannot tell", "holds", "helps")


def rate(folder: str, *arguments: str) -> float:
    """Return samples per second of a whole training process."""
    done = subprocess.run([sys.executable, SCRIPT, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


def judge(case: str, pairs: int, budget: str) -> dict[str, Any]:
    """Diagnose ``case``, follow the advice, and return whether it was right."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "autotune", "diagnose", "--json", "--budget", budget, SCRIPT, case]
        done = subprocess.run([*command, "--seconds", "1e9"], cwd=folder, capture_output=True, text=True, check=False)
        seconds = round(time.monotonic() - began, 1)
        if done.returncode:
            return {"case": case, "verdict": done.stderr.strip().splitlines()[-1], "right": False, "seconds": seconds}
        found = json.loads(done.stdout)
        threads = found["verdict"] == Bound.THREADS.value
        advice = ["--threads", str(found["threads"])] if threads else ["--advised"]
        gains = [rate(folder, case, *advice) / rate(folder, case) for _ in range(pairs)]
    return {"case": case, **score(case, found, statistics.median(gains)), "seconds": seconds}


def score(case: str, found: dict[str, Any], gain: float) -> dict[str, Any]:
    """Return whether the diagnosis ``found`` is the truth of ``case``, and whether its bound holds for ``gain``."""
    bound, part, function = TRUTH[case]
    threads = found["verdict"] == Bound.THREADS.value
    limits = found["bounds"].get("threads" if threads else part, {"low": 0.0, "value": 1.0, "high": math.inf})
    named = found["inspection"]["places"].get(part, {}).get("function", "")
    return {
        "verdict": found["verdict"],
        "right": (found["verdict"] == bound.value and function in ("", named)) or (threads and gain > 1),
        "cannot tell": Bound(found["verdict"]) in DOUBTS,
        "bound": {name: round(limits[name], 2) for name in ("value", "low", "high")},
        "gain": round(gain, 2),
        "holds": gain <= limits["high"],
        "helps": gain > 1,
        "neighbours": round(found["neighbours"], 2),
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
    with contextlib.ExitStack() as busy:
        for _ in range(options.beside):
            busy.enter_context(neighbour("steady"))
        for case in options.cases:
            results.append(judge(case, options.pairs, options.budget))
            print(json.dumps(results[-1]), flush=True)
    sums = [f"{name} {sum(bool(each.get(name)) for each in results)}" for name in SCORES]
    print(f"of {len(results)}: {', '.join(sums)}")


if __name__ == "__main__":
    main()
