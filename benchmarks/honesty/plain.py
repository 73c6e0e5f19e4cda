"""Plain training that measures when it is asked: PyTorch alone, nothing of autotune's.

    python benchmarks/honesty/plain.py TASK '{"threads": 2, ...}'

Each line on stdin is a number of seconds, answered by items per second over them. A line that is answered first says
that it is warm.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

WARMUP_SECONDS = 2.0
WAKE_SECONDS = 0.1
"""Before each block: threads and caches have slept. A trial's threads exchange data before a block."""


def main(task: str, settings: str) -> None:
    """Until the end of stdin."""
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from benchmarks.rivals.trial import Training, load

    wanted = json.loads(settings)
    torch.set_num_threads(wanted["threads"])
    torch.set_num_interop_threads(wanted["interop_threads"])
    training = Training(load(task), wanted, world=1)
    training.run(WARMUP_SECONDS)
    print("warm", flush=True)
    for line in sys.stdin:
        training.run(WAKE_SECONDS)
        print(training.run(float(line)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
