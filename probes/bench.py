"""Short benchmarks of PyTorch on this machine: the ceilings that a training step is compared with.

Each runs in a child process, ``python -m autotune.probes.bench NAME``, which imports torch; the parent keeps results.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from autotune.probes.system import ROOT, Facts, System

TIMEOUT_SECONDS = 60.0
GEMM_SECONDS = 0.4
"""Time spent per precision; the best multiplication counts, since noise only ever slows."""
COPY_SECONDS = 0.5
COPY_BYTES = 256 << 20
"""Per buffer: beyond the last-level cache of all but the largest servers."""
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_PROC_BIND", "LD_PRELOAD")


class BenchError(RuntimeError):
    """A benchmark ended without its JSON object."""


def measure(system: System, names: Sequence[str]) -> dict[str, Facts]:
    """Return results by benchmark, cached per boot, mask and software; ``{"error": reason}`` is not cached.

    Args:
        system: where to run.
        names: of `BENCHMARKS`.
    """
    return {name: _one(system, name) for name in names}


def gemm() -> Facts:
    """Multiply matrices in fp32 and bf16: GFLOP/s of each, None for one that this build cannot multiply."""
    import torch

    return {"threads": torch.get_num_threads(), "fp32": _rate(torch.float32), "bf16": _rate(torch.bfloat16)}


def bandwidth() -> Facts:
    """Copy memory by all of PyTorch's threads: GB/s, bytes read plus bytes written."""
    import torch

    source, target = torch.ones(COPY_BYTES // 4), torch.empty(COPY_BYTES // 4)
    target.copy_(source)  # maps the pages
    seconds = _least(lambda: target.copy_(source), COPY_SECONDS)
    return {"threads": torch.get_num_threads(), "copy": round(2 * COPY_BYTES / seconds / 1e9, 2)}


BENCHMARKS: dict[str, Callable[[], Facts]] = {"gemm": gemm, "bandwidth": bandwidth}


def main() -> None:
    """Print the result of the benchmark that the command line names, as one JSON object."""
    print(json.dumps(BENCHMARKS[sys.argv[1]]()))


def _rate(dtype: Any) -> float | None:
    """Return the best GFLOP/s of a square product, its size doubled until one takes a hundredth of the time."""
    import torch

    try:
        size = 512
        while size < 4096 and _product(torch.ones(size, size, dtype=dtype), 0.0) < GEMM_SECONDS / 100:
            size *= 2
        seconds = _product(torch.ones(size, size, dtype=dtype), GEMM_SECONDS)
    except RuntimeError:
        return None
    return round(2 * size**3 / seconds / 1e9, 2)


def _product(matrix: Any, seconds: float) -> float:
    return _least(lambda: matrix @ matrix, seconds)


def _least(work: Callable[[], object], seconds: float, repeats: int = 3) -> float:
    """Return the least time of ``work``, repeated for so many ``seconds`` and at least ``repeats`` times."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < repeats or time.perf_counter() < end:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def _one(system: System, name: str) -> Facts:
    if name not in BENCHMARKS:
        raise ValueError(f"no benchmark is called {name!r}; there are {', '.join(BENCHMARKS)}")
    try:
        return system.remember(f"bench-{name}", _key(system), lambda: _run(system, name))
    except BenchError as error:
        return {"error": str(error)}


def _key(system: System) -> list[object]:
    """Return machine and boot, software, and what shapes threads."""
    variables = {variable: system.env.get(variable) for variable in _THREAD_VARIABLES}
    mask = sorted(system.affinity() or ())
    return [1, system.boot_id(), system.package_version("torch"), system.python, mask, variables]


def _run(system: System, name: str) -> Facts:
    done = system.run([system.python, "-m", "autotune.probes.bench", name], timeout=TIMEOUT_SECONDS, cwd=ROOT)
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
