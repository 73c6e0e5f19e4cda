"""Memory bandwidth of a copy by all of PyTorch's threads, in GB/s (bytes read plus bytes written).

python -m autotune.probes.bench.bandwidth [threads]
"""

from __future__ import annotations

import json
import sys
import time

import torch

SIZE = 256 << 20
"""Bytes per buffer: beyond the last-level cache of all but the largest servers."""
SECONDS = 0.5


def main() -> None:
    """Print ``{"threads", "copy"}``."""
    if len(sys.argv) > 1:
        torch.set_num_threads(int(sys.argv[1]))
    print(json.dumps({"threads": torch.get_num_threads(), "copy": copy_rate()}))


def copy_rate(size: int = SIZE, seconds: float = SECONDS) -> float:
    """Best GB/s over repeated copies; the first copy, which maps the pages, does not count."""
    source, target = torch.ones(size // 4), torch.empty(size // 4)
    target.copy_(source)
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        target.copy_(source)
        best = min(best, time.perf_counter() - start)
    return round(2 * size / best / 1e9, 2)


if __name__ == "__main__":
    main()
