"""A neighbour on the same machine: a process of its own that keeps a core busy, all the time or now and then.

    python -m benchmarks.neighbour steady|niced|bursts [--seed 0]

It ends when it is killed, or with the process that started it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from autotune.trial.process_tree import die_with_parent

NONE, NICED = "none", "niced"
LOADS = (NONE, "steady", NICED, "bursts")
NICENESS = 19
BURST_SECONDS = (0.1, 3.0)
ROOT = Path(__file__).resolve().parents[1]


def phases(load: str, seed: int) -> Iterator[tuple[float, float]]:
    """Yield busy and idle seconds, in turn, without end: ``bursts`` draws both, the other loads are never idle."""
    dice = random.Random(seed)
    while True:
        yield (dice.uniform(*BURST_SECONDS), dice.uniform(*BURST_SECONDS)) if load == "bursts" else (1.0, 0.0)


@contextlib.contextmanager
def neighbour(load: str, seed: int = 0) -> Iterator[int | None]:
    """Yield its process id (None for no load); it is gone after the ``with`` block, however the block ends.

    It stays in the session of the shell, and with it in its scheduling group: a session of its own is a group of its
    own, in which its niceness would not count. A process group of its own keeps the terminal's Ctrl-C for the parent,
    which ends it; the kernel ends it with the parent.
    """
    if load == NONE:
        yield None
        return
    command = [sys.executable, "-m", "benchmarks.neighbour", load, "--seed", str(seed), "--parent", str(os.getpid())]
    process = subprocess.Popen(command, cwd=ROOT, preexec_fn=os.setpgrp, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        if not process.stdout.readline():
            raise RuntimeError(f"the neighbour ended at once, with exit code {process.wait()}")
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def main() -> None:
    """Be the neighbour."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("load", choices=LOADS[1:])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parent", type=int, help="end with this process")
    arguments = parser.parse_args()
    if arguments.parent:
        die_with_parent()
        if os.getppid() != arguments.parent:
            return
    if arguments.load == NICED:
        os.nice(NICENESS)
    print("busy", flush=True)
    for busy, idle in phases(arguments.load, arguments.seed):
        until = time.monotonic() + busy
        while time.monotonic() < until:
            pass
        time.sleep(idle)


if __name__ == "__main__":
    main()
