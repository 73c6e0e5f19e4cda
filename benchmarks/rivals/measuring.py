"""Start a trial afresh and read its rate. The same for every method, and shared with `benchmarks.recheck`."""

from __future__ import annotations

import ctypes.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from autotune.core import settings as core
from autotune.launch.binding import system_tools

from autotune.knobs import affinity as binding
from autotune.knobs import settings as core
from autotune.knobs.omp_wait_policy import OMP_WAIT_POLICY
from autotune.launch.command import command, system_tools
from autotune.probes.inventory import probe
from autotune.probes.software import mpiexec
from autotune.probes.system import System

TRIAL = Path(__file__).with_name("trial.py")
RUN_CPU = ["-m", "torch.backends.xeon.run_cpu", "--use-default-allocator", "--ninstances", "1"]
"""PyTorch's launcher: binds to cores (numactl or taskset) and sets OpenMP's threads. It only looks for allocators named
``lib<name>.so``, which Linux distributions install with their development files; so they are preloaded before it."""
TORCHRUN = ["-m", "torch.distributed.run", "--standalone"]
LIBRARIES = {"jemalloc": ("jemalloc",), "tcmalloc": ("tcmalloc", "tcmalloc_minimal")}
PATIENCE = 300.0
"""Seconds until a trial counts as hanging."""

Settings = Mapping[str, Any]


class Failed(Exception):
    """A process ended without an answer; the message is the end of what it wrote."""


class TimeUp(Failed):
    """Stopped at the deadline."""


def rate(
    task: str | Path, settings: Settings, seconds: float, launcher: str = "plain", timeout: float = PATIENCE
) -> float:
    """Items per second of one fresh start.

    Args:
        task: the task file.
        settings: a value for every knob.
        seconds: measured after the warm-up.
        launcher: ``plain`` starts the ranks directly, ``run_cpu`` through PyTorch's launcher.
        timeout: seconds for everything.

    Raises:
        Failed: no rate came out.
        TimeUp: not within ``timeout``.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spec = {"task": str(Path(task).resolve()), "settings": dict(settings), "seconds": seconds}
        (folder / "trial.json").write_text(json.dumps(spec), "utf-8")
        run(commands(settings, launcher, folder), environment(settings), timeout)
        try:
            return float((folder / "rate").read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise Failed("ended without a rate") from error


def commands(settings: Settings, launcher: str, folder: Path) -> list[tuple[list[str], dict[str, str]]]:
    """What to start for one trial: command lines, each with its own variables."""
    world, threads = settings["processes"], settings["threads"]
    trial = [str(TRIAL), str(folder)]
    if launcher == "plain":
        wanted = core.Settings.from_dict(settings)
        binder = system_tools(binding.plan(wanted, probe()))
        if wanted.backend == "mpi":
            launcher = mpiexec(System()) or "mpiexec"
            return [(command(wanted, str(TRIAL), [str(folder)], sys.executable, binder=binder, mpiexec=launcher), {})]
        ranks = ({"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)} for rank in range(world))
        return [([*binder, sys.executable, *trial], rank) for rank in ranks]
    torchrun = [*TORCHRUN, f"--nproc-per-node={world}"] if world > 1 else []
    run_cpu = [*RUN_CPU, "--ncores-per-instance", str(world * threads)]  # shared out among torchrun's ranks
    return [([sys.executable, *torchrun, *run_cpu, *trial], {})]


def environment(settings: Settings) -> dict[str, str]:
    """This environment with the threads, their waiting and the allocator of ``settings``."""
    found = os.environ | {"OMP_NUM_THREADS": str(settings["threads"]), "GLOO_SOCKET_IFNAME": "lo"}
    if settings.get("omp_wait_policy", "default") != "default":
        found[OMP_WAIT_POLICY] = settings["omp_wait_policy"]
    if settings["allocator"] != "default":
        names = map(ctypes.util.find_library, LIBRARIES[settings["allocator"]])
        library = next(filter(None, names), None)
        if library is None:
            raise Failed(f"{settings['allocator']} is not installed here")
        found["LD_PRELOAD"] = library
    return found


def run(commands: Sequence[tuple[list[str], Mapping[str, str]]], environment: Mapping[str, str], timeout: float) -> str:
    """Run ``commands`` together until all have ended; returns what the first wrote to stdout.

    Raises:
        Failed: one ended with an error.
        TimeUp: not within ``timeout`` seconds. Nothing of them is left in any case.
    """
    deadline = time.monotonic() + timeout
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as log:
        alone = len(commands) == 1
        started = [_start(line, {**environment, **own}, out, log, alone) for line, own in commands]
        with _ended(started):
            for process in started:
                try:
                    code = process.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    raise TimeUp(f"not within {timeout:.0f} s") from None
                if code:
                    raise Failed(f"exit code {code}: {_tail(log)}")
        out.seek(0)
        return out.read()


def _start(
    line: list[str], environment: Mapping[str, str], out: IO[str], log: IO[str], alone: bool
) -> subprocess.Popen[str]:
    """A process group of its own; ranks have sessions of their own too, as under torchrun, which makes them scheduling
    groups of their own."""
    group: dict[str, Any] = {"preexec_fn": os.setpgrp} if alone else {"start_new_session": True}
    return subprocess.Popen(line, stdout=out, stderr=log, env=dict(environment), text=True, **group)


@contextmanager
def _ended(started: Sequence[subprocess.Popen[str]]) -> Iterator[None]:
    """Ends the process groups afterwards, loader workers included."""
    try:
        yield
    finally:
        for process in started:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            finally:
                process.wait()


def _tail(log: IO[str]) -> str:
    log.seek(0)
    lines = log.read().strip().splitlines()
    return re.sub(r"(/[^\s/:'\"]+)+/", "", lines[-1]) if lines else "it wrote nothing"  # no folders in result files
