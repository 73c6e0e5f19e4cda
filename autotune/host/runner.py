"""Opens the runner of a task file: one machine-wide lock, a scratch folder, signals that clean up."""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from autotune.core.binding import plan
from autotune.core.clamp import over_machines
from autotune.core.errors import Interrupted, UsageError
from autotune.core.settings import Settings
from autotune.launch.environment import environment as launch_environment
from autotune.launch.environment import scrub
from autotune.store import lock
from autotune.trial.environment import trial_environment
from autotune.trial.fleet import Fleet
from autotune.trial.paths import StudyPaths
from autotune.trial.runner import Runner
from autotune.tuning.state import Observer
from probes.facts import Inventory
from probes.memory import oom_kills
from probes.system import System


@contextmanager
def open_runner(
    task: Path, inventory: Inventory, seed: int, patience: float, observe: Observer, fleet: Fleet | None = None
) -> Iterator[Runner]:
    """A runner for ``task`` while no other run times anything on this machine; everything is gone afterwards.

    Args:
        task: the task file.
        inventory: this machine.
        seed: of data order and weights.
        patience: seconds to wait for another run to end.
        observe: told that it waits.
        fleet: the other machines that take part.

    Raises:
        NothingUsable: another run held the machine for ``patience``.
        Interrupted: on SIGINT or SIGTERM.
    """
    system = System()
    waiting = lock.acquire(patience, lambda pid: observe(stage=f"waiting for the tuning run of process {pid}"))
    with signals_raise(), waiting:
        paths = StudyPaths.create()
        environment = environment_by_allocator(inventory, paths)
        with Runner(
            task,
            paths,
            environment,
            Path.cwd(),
            seed,
            oom_kills=lambda: oom_kills(system),
            places=functools.partial(plan, inventory=inventory),
            spread=functools.partial(over_machines, inventory=inventory),
            fleet=fleet,
        ) as runner:
            yield runner


def refuse_ranks() -> None:
    """A run is started once: raises UsageError in a rank of a distributed job (huggingface/transformers#18609)."""
    if os.environ.get("WORLD_SIZE", "1") != "1" or "RANK" in os.environ:
        raise UsageError(
            "tune was started as one rank of a distributed job (RANK is set). Start it once, without torchrun or"
            " mpiexec: it starts several processes by itself where that pays."
        )


def environment_by_allocator(inventory: Inventory, paths: StudyPaths) -> Callable[[str], dict[str, str]]:
    """Environment of the zygote that serves an allocator."""

    def of(allocator: str) -> dict[str, str]:
        base = scrub(os.environ)
        preload = launch_environment(Settings(allocator=allocator), inventory, {}).set.get("LD_PRELOAD")
        threads, memory = inventory.budget.threads, inventory.memory.limit
        return trial_environment(base, paths, threads=threads, memory=memory, preload=preload)

    return of


@contextmanager
def signals_raise() -> Iterator[None]:
    """SIGINT and SIGTERM raise `Interrupted` once, in the main thread; later ones wait for the clean-up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(signum: int, _: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(signum)

    before = {signum: signal.signal(signum, interrupt) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
