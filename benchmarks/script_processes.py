"""Which scripts train together as two processes, and what it costs to find out.

    python -m benchmarks.script_processes [SCRIPT...]

For each script of ``tests/processes/scripts/corpus`` that knows of processes, or those named: seconds until it trains as one
process, seconds that the trials with one and two processes take on top, and the answer. Last, samples per second of two
processes against one, with one thread each (beside load, threads of one process wait for each other), for one of those
that train together, as blocks in turns.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from autotune.knobs.baseline import baseline_settings
from autotune.probes.inventory import probe
from autotune.trial.parent.runner import Runner
from autotune.trial.parent.trial_bench import TrialBench
from autotune.trial.target import started_script
from autotune.tuning.host_runner import open_runner
from tests.processes.scripts import corpus

STEPS, ROUNDS = 1_000_000, 8
TOGETHER = "torchrun_style"


@contextlib.contextmanager
def opened(script: corpus.Script) -> Iterator[Runner]:
    """A runner for ``script`` in a folder of its own."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        words = corpus.place(script, Path(folder), STEPS)
        os.chdir(folder)
        try:
            with open_runner(started_script(words[0], words[1:]), probe(), 0, 600.0) as runner:
                yield runner
        finally:
            os.chdir(before)


def answer(script: corpus.Script) -> None:
    """One script: what it shows, and in how many seconds."""
    begun = time.monotonic()
    with opened(script) as runner:
        runner.warm()
        trains = time.monotonic()
        reason = runner.describe().why_not_several
        print(
            f"{script.name}: trains after {trains - begun:.1f} s, answer after {time.monotonic() - trains:.1f} s more"
        )
        print(f"  {reason or 'its processes train together'}", flush=True)


def gain(script: corpus.Script) -> None:
    """Two processes against one, with one thread each."""
    with opened(script) as runner:
        one = baseline_settings(runner.describe(), probe()).but(threads=1)
        two = one.but(processes=2, batch_size=one.batch_size // 2)
        bench = TrialBench(runner, one)
        with bench.contest({"one": one, "two": two}, float("inf")) as contest:
            rounds = [contest.round(0.3) for _ in range(ROUNDS)]
    low, middle, high = statistics.quantiles([taken["two"] / taken["one"] for taken in rounds], n=4)
    print(f"{script.name}: two processes make {middle:.2f} times the samples per second of one")
    print(f"  quartiles {low:.2f} to {high:.2f}, {ROUNDS} rounds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", nargs="*")
    wanted = parser.parse_args().scripts
    known = {script.name: script for script in corpus.CORPUS if script.processes or script.apart}
    for name in wanted or known:
        if known[name].needs is None or importlib.util.find_spec(str(known[name].needs)) is not None:
            answer(known[name])
    gain(known[TOGETHER])


if __name__ == "__main__":
    main()
