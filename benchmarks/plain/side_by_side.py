"""Plain PyTorch trainers that stay in memory and take blocks in turn: all that differs is what they were given.

Nothing of the project runs in them (`benchmarks.plain.training`). Every round takes one block of each, in random order.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.knobs import binding
from autotune.knobs.settings import Settings
from autotune.knobs.threads import OMP_WAIT_POLICY
from autotune.launch.command import command, system_tools
from autotune.probes.inventory import probe
from autotune.probes.software import mpiexec
from autotune.probes.system import System

TRAINING = Path(__file__).with_name("training.py")
LIBRARIES = {"jemalloc": ("jemalloc",), "tcmalloc": ("tcmalloc", "tcmalloc_minimal")}
PATIENCE_SECONDS = 120.0
"""Without an answer for so long, a trainer counts as hanging and is ended."""


class Failed(Exception):
    """A trainer ended without an answer; the message is the end of what it wrote."""


@dataclass(frozen=True)
class Contender:
    """What one trainer is given.

    Attributes:
        task: the task file.
        settings: a value for every knob.
        extra: what no knob says; see `benchmarks.plain.training.Training`.
        variables: of its environment, on top.
        device: ``cpu`` or ``cuda``.
    """

    task: Path
    settings: Mapping[str, Any]
    extra: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    device: str = "cpu"


class Trainer:
    """One trainer: started at once, asked for blocks when it is ready.

    Raises:
        Failed: its allocator or mpiexec is not installed.
    """

    def __init__(self, contender: Contender, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._log = folder / "log"
        spec = {"task": str(contender.task.resolve()), "settings": dict(contender.settings)}
        spec |= {"device": contender.device, "extra": dict(contender.extra)}
        (folder / "trial.json").write_text(json.dumps(spec), "utf-8")
        variables = environment(contender.settings) | dict(contender.variables)
        with open(self._log, "w") as log:
            self.ranks = [
                subprocess.Popen(
                    line,
                    stdin=subprocess.PIPE if number == 0 else subprocess.DEVNULL,
                    stdout=subprocess.PIPE if number == 0 else subprocess.DEVNULL,
                    stderr=log,
                    env=variables | own,
                    text=True,
                    preexec_fn=os.setpgrp,
                )
                for number, (line, own) in enumerate(commands(contender.settings, folder))
            ]

    def ready(self) -> None:
        """Wait until it is warm.

        Raises:
            Failed: it ended instead.
        """
        self._answer()

    def rate(self, seconds: float) -> float:
        """Return items per second over a block of ``seconds``.

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
        line = str(self.ranks[0].stdout.readline()).strip()
        patience.cancel()
        if not line:
            raise Failed(f"ended: {''.join(tail(self._log.read_text('utf-8', 'replace'), 1))[-300:]}")
        return line

    def close(self) -> None:
        """End it, loader workers included."""
        for rank in self.ranks:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(rank.pid, signal.SIGKILL)
            rank.wait()


def rounds(
    contenders: Mapping[str, Contender], count: int, seconds: float, *, seed: int = 0
) -> Iterator[dict[str, float]]:
    """Yield items per second by name, round by round; a contender that fails is named on stderr and left out.

    Args:
        contenders: by name. All of them get fresh processes.
        count: of rounds.
        seconds: of a block.
        seed: of the order within rounds.
    """
    order = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        trainers: dict[str, Trainer] = {}

        def start(name: str, contender: Contender) -> None:
            trainers[name] = trainer = Trainer(contender, Path(folder) / str(len(trainers)))
            stack.callback(trainer.close)

        for name, contender in contenders.items():
            _works(name, lambda name=name, contender=contender: start(name, contender))  # type: ignore[misc]
        alive = [name for name, trainer in trainers.items() if _works(name, trainer.ready)]
        for _ in range(count):
            found: dict[str, float] = {}
            for name in order.sample(alive, len(alive)):
                with contextlib.suppress(Failed):
                    found[name] = trainers[name].rate(seconds)
            yield found


def _works(name: str, action: Callable[[], None]) -> bool:
    try:
        action()
    except Failed as error:
        print(f"  {name}: {error}", file=sys.stderr)
        return False
    return True


def commands(settings: Mapping[str, Any], folder: Path) -> list[tuple[list[str], dict[str, str]]]:
    """Return what to start for one trainer: command lines, each with its own variables.

    Raises:
        Failed: the backend is mpi, and there is no mpiexec.
    """
    wanted = Settings(**settings)
    binder = system_tools(binding.plan(wanted, probe()))
    if wanted.backend == "mpi":
        launcher = mpiexec(System())
        if launcher is None:
            raise Failed("no mpiexec here: pip install -e '.[mpi]'")
        line = command(wanted, str(TRAINING), [str(folder)], sys.executable, binder=binder, mpiexec=launcher)
        return [(line, {})]
    ranks = (
        {"RANK": str(r), "LOCAL_RANK": str(r), "WORLD_SIZE": str(wanted.processes)} for r in range(wanted.processes)
    )
    return [([*binder, sys.executable, str(TRAINING), str(folder)], rank) for rank in ranks]


def environment(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return this environment with the threads, their waiting and the allocator of ``settings``.

    Raises:
        Failed: the allocator is not installed.
    """
    found = os.environ | {"OMP_NUM_THREADS": str(settings["threads"]), "GLOO_SOCKET_IFNAME": "lo"}
    if settings.get("omp_wait_policy", "default") != "default":
        found[OMP_WAIT_POLICY] = settings["omp_wait_policy"]
    if settings["allocator"] != "default":
        library = next(filter(None, map(ctypes.util.find_library, LIBRARIES[settings["allocator"]])), None)
        if library is None:
            raise Failed(f"{settings['allocator']} is not installed here")
        found["LD_PRELOAD"] = library
    return found


def tail(text: str, count: int = 25) -> list[str]:
    """Return the last lines of ``text``, without folders: result files name no machine's paths."""
    return re.sub(r"(/[^\s/:'\"]+)+/", "", text).strip().splitlines()[-count:]
