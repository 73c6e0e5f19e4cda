"""Matrix multiplication rate of PyTorch here, fp32 and bf16, in GFLOP/s: the ceiling for a training step.

python -m autotune.probes.bench.gemm [threads]
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch

SECONDS = 0.4
"""Time spent per precision; the best multiplication counts, since noise only ever slows."""


def main() -> None:
    """Print ``{"threads", "fp32", "bf16"}``; a precision that this build cannot multiply is null."""
    if len(sys.argv) > 1:
        torch.set_num_threads(int(sys.argv[1]))
    rates = {"fp32": rate(torch.float32), "bf16": rate(torch.bfloat16)}
    print(json.dumps({"threads": torch.get_num_threads(), **rates}))


def rate(dtype: Any, seconds: float = SECONDS) -> float | None:
    """Best GFLOP/s of a square product, its size doubled until one takes a hundredth of the time."""
    try:
        size = 512
        while size < 4096 and _time(size, dtype) < seconds / 100:
            size *= 2
        left = torch.ones(size, size, dtype=dtype)
        best, end = float("inf"), time.perf_counter() + seconds
        while time.perf_counter() < end:
            best = min(best, _once(left))
    except RuntimeError:
        return None
    return round(2 * size**3 / best / 1e9, 2)


def _time(size: int, dtype: Any) -> float:
    matrix = torch.ones(size, size, dtype=dtype)
    return min(_once(matrix) for _ in range(3))


def _once(matrix: Any) -> float:
    start = time.perf_counter()
    matrix @ matrix
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
