"""A neighbour on the same machine: a process of its own that keeps a core busy, all the time or now and then.

    python -m benchmarks.honesty.load steady|niced|bursts|drift [--span 60] [--seed 0]

It ends when it is killed, or with the process that started it.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from autotune.trial.process_tree import die_with_parent

NONE, NICED = "none", "niced"
LOADS = (NONE, "steady", NICED, "bursts", "drift")
NICENESS = 19
BURST_SECONDS = (0.1, 3.0)
TICK_SECONDS = 0.1
"""One busy and one idle phase of a drifting load."""
ROOT = Path(__file__).resolve().parents[2]


def phases(load: str, span: float, seed: int) -> Iterator[tuple[float, float]]:
    """Busy and idle seconds, in turn, without end.

    Args:
        load: ``steady`` and ``niced`` are never idle; ``bursts`` draws every phase from `BURST_SECONDS`; ``drift`` goes
            from idle to always busy and back.
        span: seconds of one way up and down of ``drift``.
        seed: of the bursts.
    """
    dice = random.Random(seed)
    for tick in itertools.count():
        if load in ("steady", NICED):
            yield 1.0, 0.0
        elif load == "bursts":
            yield dice.uniform(*BURST_SECONDS), dice.uniform(*BURST_SECONDS)
        else:
            duty = 1.0 - abs(1.0 - 2.0 * (tick * TICK_SECONDS / span % 1.0))
            yield duty * TICK_SECONDS, (1.0 - duty) * TICK_SECONDS


@contextlib.contextmanager
def neighbour(load: str, span: float = 60.0, seed: int = 0) -> Iterator[int | None]:
    """Its process id (None for no load) while the ``with`` block runs; gone afterwards, however the block ends.

    It stays in the session of the shell, and with it in its scheduling group: a session of its own is a group of its
    own, in which its niceness would not count. A process group of its own keeps the terminal's Ctrl-C for the parent,
    who ends it; the kernel ends it with the parent.
    """
    if load == NONE:
        yield None
        return
    command = [sys.executable, "-m", "benchmarks.honesty.load", load, "--span", str(span), "--seed", str(seed)]
    process = subprocess.Popen(
        [*command, "--parent", str(os.getpid())], cwd=ROOT, preexec_fn=os.setpgrp, stdout=subprocess.PIPE
    )
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
    parser.add_argument("--span", type=float, default=60.0)
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
    for busy, idle in phases(arguments.load, arguments.span, arguments.seed):
        until = time.monotonic() + busy
        while time.monotonic() < until:
            pass
        time.sleep(idle)


if __name__ == "__main__":
    main()
