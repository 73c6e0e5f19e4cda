"""Plain PyTorch trainers that stay in memory and take blocks in turn: all that differs is what they were given.

Nothing of the project runs in them (`benchmarks.rivals.trial`). Every round takes one block of each, in random order.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.rivals.measuring import Failed, commands, environment

PATIENCE_SECONDS = 120.0
"""Without an answer for so long, a trainer counts as hanging and is ended."""


@dataclass(frozen=True)
class Contender:
    """What one trainer is given.

    Attributes:
        task: the task file.
        settings: a value for every knob.
        extra: what no knob says; see `benchmarks.rivals.trial.Training`.
        variables: of its environment, on top.
        device: ``cpu`` or ``cuda``.
    """

    task: Path
    settings: Mapping[str, Any]
    extra: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    device: str = "cpu"


class Trainer:
    """One trainer: started at once, asked for blocks when it is ready."""

    def __init__(self, contender: Contender, folder: Path) -> None:
        folder.mkdir()
        self._log = folder / "log"
        spec = {"task": str(contender.task.resolve()), "settings": dict(contender.settings), "seconds": 0.5}
        spec |= {"serve": True, "device": contender.device, "extra": dict(contender.extra)}
        (folder / "trial.json").write_text(json.dumps(spec), "utf-8")
        variables = environment(contender.settings) | dict(contender.variables)
        lines = commands(contender.settings, "plain", folder)
        with open(self._log, "w") as log:
            self.ranks = [
                subprocess.Popen(
                    line,
                    stdin=subprocess.PIPE if number == 0 else subprocess.DEVNULL,
                    stdout=subprocess.PIPE if number == 0 else subprocess.DEVNULL,
                    stderr=log,
                    env=variables | own,
                    text=True,
                    process_group=0,
                )
                for number, (line, own) in enumerate(lines)
            ]

    def ready(self) -> None:
        """Wait until it is warm.

        Raises:
            Failed: it ended instead.
        """
        self._answer()

    def rate(self, seconds: float) -> float:
        """Items per second over a block of ``seconds``.

        Raises:
            Failed: it ended instead.
        """
        with contextlib.suppress(OSError):
            print(seconds, file=self.ranks[0].stdin, flush=True)
        return float(self._answer())

    def _answer(self) -> str:
        assert self.ranks[0].stdout is not None
        patience = threading.Timer(PATIENCE_SECONDS, self.close)
        patience.start()
        line = self.ranks[0].stdout.readline().strip()
        patience.cancel()
        if not line:
            tail = self._log.read_text("utf-8", "replace").strip().splitlines()[-1:]
            raise Failed(f"ended: {''.join(tail)[-300:]}")
        return line

    def close(self) -> None:
        """End it, loader workers included."""
        for rank in self.ranks:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(rank.pid, signal.SIGKILL)
            rank.wait()


def rounds(
    contenders: Mapping[str, Contender], count: int, seconds: float, *, deadline: float = float("inf"), seed: int = 0
) -> Iterator[dict[str, float]]:
    """Items per second by name, round by round; who fails is said on stderr and left out.

    Args:
        contenders: by name.
        count: of rounds.
        seconds: of a block.
        deadline: no round begins later, on the monotonic clock.
        seed: of the order within rounds.
    """
    order = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        trainers: dict[str, Trainer] = {}
        for number, (name, contender) in enumerate(contenders.items()):
            trainers[name] = trainer = Trainer(contender, Path(folder) / str(number))
            stack.callback(trainer.close)
        alive = [name for name, trainer in trainers.items() if _works(name, trainer.ready)]
        for _ in range(count):
            if time.monotonic() > deadline:
                return
            yield _round(trainers, order.sample(alive, len(alive)), seconds)


def _round(trainers: Mapping[str, Trainer], names: Sequence[str], seconds: float) -> dict[str, float]:
    found: dict[str, float] = {}
    for name in names:
        with contextlib.suppress(Failed):
            found[name] = trainers[name].rate(seconds)
    return found


def _works(name: str, action: Any) -> bool:
    try:
        action()
    except Failed as error:
        print(f"  {name}: {error}", file=sys.stderr)
        return False
    return True
