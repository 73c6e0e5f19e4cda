"""Whole processes in turns of a second: one runs while the others are stopped, so that all meet the same machine.

    python -m benchmarks.in_turns [--pairs 3] --profile found.yaml -- train.py --epochs 3

A shared machine may change its speed by a quarter within a minute. Whole processes one after the other then differ as
much, even with the same settings. Runs the script as its user starts it and under ``autotune run``, and prints the
seconds of each, and plain over tuned: above 1 is a gain. What follows ``--`` may begin with ``torchrun`` or ``-m``.

Each starts in its own copy of the folder in which this command is started: what one writes does not disturb the other.
What a script waits for (a timer, a network) comes nearer while it is stopped, too: only what it computes is timed.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from autotune.trial.process_tree import kill_tree
from autotune.tuning.runner import interrupt_on_signals
from benchmarks.ratios import ratio_of

TURN_SECONDS = 1.0
PATIENCE_SECONDS = 1800.0
AUTOTUNE = [sys.executable, "-m", "autotune"]


@dataclass(frozen=True)
class Finished:
    """A process that has ended.

    Attributes:
        code: its exit code; None if it was not over when patience was, and was killed.
        turns: when each of its turns began and ended, by ``time.time()``.
        stdout, stderr: all that it wrote.
    """

    code: int | None
    turns: tuple[tuple[float, float], ...]
    stdout: str
    stderr: str

    @property
    def seconds(self) -> float:
        """Return how long it ran."""
        return self.until(math.inf)

    def until(self, moment: float) -> float:
        """Return how long it had run by ``moment``."""
        return sum(max(min(end, moment) - begin, 0.0) for begin, end in self.turns)

    @property
    def failure(self) -> str:
        """Return why it did not do its work: how it ended, and the last of what it wrote; empty if it did."""
        if self.code == 0:
            return ""
        last = [line.strip() for line in self.stderr.splitlines() if line.strip()][-6:]
        ended = f"exit {self.code}" if self.code is not None else f"not over after {self.seconds:.0f} s of its own"
        return f"{ended}: {' '.join(last)}"


class Running:
    """A process that runs in turns, with all that it starts."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._command, self._folder = command, folder
        self._outputs: list[IO[str]] = [
            tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (closed when the process has ended)
            for _ in range(2)
        ]
        self._process: subprocess.Popen[str] | None = None
        self._known: set[psutil.Process] = set()
        self._turns: list[tuple[float, float]] = []

    def turn(self, seconds: float) -> bool:
        """Let it run for ``seconds``. Returns False once it has ended."""
        begun = time.time()
        if self._process is None:
            out, err = self._outputs
            options = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err}
            self._process = subprocess.Popen(self._command, cwd=self._folder, **options)
            self._known = {psutil.Process(self._process.pid)}
        else:
            self._signal(signal.SIGCONT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self._turns.append((begun, time.time()))
        goes_on = self._process.returncode is None
        if goes_on:
            self._signal(signal.SIGSTOP)
        return goes_on

    def finished(self) -> Finished:
        """Return what it did. It is killed if it has not ended, and so is what it left running."""
        code = self._process.returncode if self._process is not None else None
        for process in self._known:
            if process.is_running():  # its number is not another's by now
                kill_tree(process.pid)
        if self._process is not None:
            self._process.wait()
        texts = []
        for output in self._outputs:
            output.seek(0)
            texts.append(output.read())
            output.close()
        return Finished(code, tuple(self._turns), *texts)

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and to all below it; to those that they start meanwhile, too."""
        reached: set[psutil.Process] = set()
        while new := self._known - reached:
            for process in new:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(number)
                    self._known.update(process.children(recursive=True))
            reached |= new


def in_turns(
    commands: Sequence[Sequence[str]],
    folder: Path,
    *,
    seconds: float = TURN_SECONDS,
    patience: float = PATIENCE_SECONDS,
) -> list[Finished]:
    """Run ``commands`` in turns of ``seconds``, in random order. Those that are not over after ``patience`` are killed.

    Args:
        commands: the command lines.
        folder: each starts in a copy of it.
        seconds: of a turn.
        patience: in seconds, for all of them.
    """
    with interrupt_on_signals(), tempfile.TemporaryDirectory(prefix="in-turns-") as place:
        every = []
        for number, command in enumerate(commands):
            copy, itself = Path(place) / str(number) / folder.resolve().name, shutil.ignore_patterns(Path(place).name)
            every.append(Running(command, shutil.copytree(folder, copy, symlinks=True, ignore=itself)))
        waiting, deadline = random.sample(every, len(every)), time.monotonic() + patience
        try:
            while waiting and time.monotonic() < deadline:
                waiting = [running for running in waiting if running.turn(seconds)]
        finally:
            found = [running.finished() for running in every]
    return found


def plain_command(words: Sequence[str]) -> list[str]:
    """Return the command without autotune for ``words``, which may begin with ``torchrun``."""
    if words[:1] == ["torchrun"]:
        return [sys.executable, "-m", "torch.distributed.run", *words[1:]]
    return [sys.executable, *words]


def main() -> None:
    """Run one script plainly and tuned."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--profile", required=True)
    parser.add_argument("words", nargs="+", metavar="SCRIPT [ARGS]", help="put -- before it")
    arguments = parser.parse_args()
    tuned = [*AUTOTUNE, "run", "--profile", str(Path(arguments.profile).resolve()), *arguments.words]
    logs = []
    for _pair in range(arguments.pairs):
        plain, ours = in_turns([plain_command(arguments.words), tuned], Path.cwd())
        for name, each in (("plain", plain), ("tuned", ours)):
            if each.failure:
                sys.exit(f"{name}: {each.failure}")
        print(f"plain {plain.seconds:.1f} s, tuned {ours.seconds:.1f} s")
        logs.append(math.log(plain.seconds / ours.seconds))
    print(f"whole run {ratio_of(logs)}")


if __name__ == "__main__":
    main()
