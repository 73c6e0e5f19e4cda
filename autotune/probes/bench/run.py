"""Runs the short benchmarks as child processes and caches their results. Needs the standard library only.

python -m autotune.probes.bench.run [name ...]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from autotune.probes.fact_cache import Facts
from autotune.probes.system import System

NAMES = ("start", "gemm", "bandwidth", "allreduce", "disk")
TIMEOUT_SECONDS = 60.0
_ROOT = str(Path(__file__).resolve().parents[3])
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_PROC_BIND", "LD_PRELOAD")


class BenchError(RuntimeError):
    """A benchmark ended without its JSON object."""


def measure(system: System, names: Sequence[str] = NAMES) -> dict[str, Facts]:
    """Results by benchmark, cached per boot, mask and software; ``{"error": reason}`` is not cached."""
    return {name: _one(system, name) for name in names}


def main() -> None:
    """Print all results as one JSON object."""
    print(json.dumps(measure(System(), sys.argv[1:] or NAMES)))


def _one(system: System, name: str) -> Facts:
    if name not in NAMES:
        raise ValueError(f"no benchmark is called {name!r}; there are {', '.join(NAMES)}")
    try:
        return system.remember(f"bench-{name}", _key(system, name), lambda: _run(system, name))
    except BenchError as error:
        return {"error": str(error)}


def _key(system: System, name: str) -> list[object]:
    """Machine and boot, software, and what shapes threads; the folder too, for the disk."""
    variables = {variable: system.env.get(variable) for variable in _THREAD_VARIABLES}
    folder = system.cwd() if name == "disk" else None
    mask = sorted(system.affinity() or ())
    return [1, system.boot_id(), system.package_version("torch"), system.python, mask, variables, folder]


def _run(system: System, name: str) -> Facts:
    arguments = [system.cwd()] if name == "disk" else []
    done = system.run(
        [system.python, "-m", f"autotune.probes.bench.{name}", *arguments], timeout=TIMEOUT_SECONDS, cwd=_ROOT
    )
    try:
        facts = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        facts = None
    if done.returncode or not isinstance(facts, dict):
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise BenchError(f"{name} ended with {done.returncode}: {last}")
    return facts


if __name__ == "__main__":
    main()
