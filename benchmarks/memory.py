"""Is memory a constraint that holds: does a tuning run in a small memory control group start trials that are killed?

    python -m benchmarks.memory [TASK ...] [--budget 25s]     as root, with control groups

Each example is tuned without a limit, which tells what its own settings hold; then again in a memory control group of
1.2, 1.5, 2 and 3 times that, and what the tuner takes. A row for each: trials, those that ran out of memory, and the
most that trials of the levels held. Written to ``benchmarks/results/memory.json``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from autotune.knobs.memory import TUNER_BYTES
from autotune.probes.budget import ancestors
from autotune.probes.system import System
from benchmarks import stamp
from benchmarks.knobs import EXAMPLES, TASKS

FACTORS = (1.2, 1.5, 2.0, 3.0)
LIMITS = {1: "memory.limit_in_bytes", 2: "memory.max"}


@contextlib.contextmanager
def control_group(limit: int) -> Iterator[Path]:
    """Make a memory control group below this process's own; yield the file that processes join by."""
    own = next(iter(ancestors(System(), "memory")))
    folder = Path(own.folder) / f"autotune-benchmark-{os.getpid()}"
    folder.mkdir()
    try:
        (folder / LIMITS[own.version]).write_text(str(limit), "ascii")
        yield folder / "cgroup.procs"
    finally:
        folder.rmdir()


def tuned(task: str, budget: str, join: Path | None) -> dict[str, Any]:
    """Tune an example; return its profile, or why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "autotune", "tune", str(EXAMPLES / f"{task}.py"), "--budget", budget]
        command += ["--profile", f"{folder}/found.yaml", "--json"]
        enter = None if join is None else (lambda: join.write_text(str(os.getpid()), "ascii"))
        done = subprocess.run(command, preexec_fn=enter, capture_output=True, text=True, check=False)
        found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {"failure": done.stderr[-500:]}
        return found


def row(task: str, factor: float | None, limit: int | None, found: dict[str, Any]) -> dict[str, Any]:
    """Return what a table says of one run."""
    if "failure" in found:
        return {"task": task, "factor": factor, "limit_mib": limit and limit >> 20, "failure": found["failure"]}
    evidence = found["evidence"]
    killed = [each["changed"] for each in evidence["failures"] if each["kind"] == "out-of-memory"]
    return {
        "task": task,
        "factor": factor,
        "limit_mib": limit and limit >> 20,
        "trials": evidence["trials"],
        "killed": len(killed),
        "which": killed,
        "held_mib": {name: level.get("memory", 0) >> 20 for name, level in found["levels"].items()},
    }


def main() -> None:
    """Tune each example without and with limits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=TASKS, metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--budget", default="25s")
    arguments = parser.parse_args()
    rows = []
    for task in arguments.tasks:
        free = tuned(task, arguments.budget, None)
        rows.append(row(task, None, None, free))
        own = free["levels"]["safe"]["memory"]
        for factor in FACTORS:
            limit = int(own * factor) + TUNER_BYTES
            with control_group(limit) as join:
                rows.append(row(task, factor, limit, tuned(task, arguments.budget, join)))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    stamp.write("memory", {"budget": arguments.budget, "rows": rows})
    print(stamp.table([{name: each.get(name) for name in ("task", "factor", "trials", "killed")} for each in rows]))


if __name__ == "__main__":
    main()
