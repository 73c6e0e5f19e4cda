"""Opens the runner of a target: one machine-wide lock, a scratch folder, signals that clean up.

Two runs at once would measure each other. So all timed trials of a machine share one file lock, which the kernel
releases when its process ends, also after a crash. It is in the temporary folder and writable by all users, who share
the processors.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType

from filelock import FileLock, Timeout

from autotune.errors import Interrupted, LaunchError, MachineChanged, NothingUsable, UsageError
from autotune.knobs.binding import plan
from autotune.knobs.settings import Settings
from autotune.launch.command import inherited, scrub
from autotune.probes import budget
from autotune.probes.cpu import online_cpus
from autotune.probes.facts import Inventory
from autotune.probes.system import System
from autotune.trial.child.shm import remove_abandoned
from autotune.trial.parent.fork_servers import TrialSetup, trial_environment
from autotune.trial.parent.runner import Runner
from autotune.trial.paths import StudyPaths
from autotune.trial.target import Script, Target
from autotune.tuning.events import Observer, ignore

POLL_SECONDS = 0.2
LOCK_NAME = "torch-autotune-trials.lock"
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@contextlib.contextmanager
def open_runner(
    target: Target, inventory: Inventory, seed: int, patience: float, observe: Observer = ignore
) -> Iterator[Runner]:
    """Open a runner for ``target`` while no other run times anything on this machine; all is removed afterwards.

    Args:
        target: the task file or script.
        inventory: this machine.
        seed: of data order and weights.
        patience: seconds to wait for another run to end.
        observe: called for every wait.

    Raises:
        NothingUsable: another run held the machine for ``patience``.
        UsageError: the working folder is gone.
        Interrupted: on one of `STOPS`.
    """
    with interrupt_on_signals(), acquire(patience, lambda: observe(stage="waiting for another tuning run")):
        remove_abandoned()
        try:
            origin = Path.cwd()
        except OSError as error:
            raise UsageError("the working folder was deleted: change to one that exists") from error
        paths = StudyPaths.create()
        setup = TrialSetup(
            target.path,
            paths,
            partial(start_environment, inventory, paths),
            origin,
            seed,
            script=target if isinstance(target, Script) else None,
            binding=partial(plan, inventory=inventory),
        )
        with Runner(setup) as runner:
            yield runner


def start_environment(inventory: Inventory, paths: StudyPaths, settings: Settings) -> dict[str, str]:
    """Return the environment of the fork server for what a process must start with of ``settings``."""
    base = scrub(os.environ)
    threads, memory = inventory.budget.threads, inventory.memory.limit
    return trial_environment(base | inherited(settings, inventory, base), paths, threads=threads, memory=memory)


def check_not_a_rank() -> None:
    """Raise `UsageError` in a rank of a distributed job: a run is started once (huggingface/transformers#18609)."""
    if os.environ.get("WORLD_SIZE", "1") != "1" or "RANK" in os.environ:
        advice = "start autotune without its launcher, or unset them"
        raise UsageError(f"a rank of a distributed job (RANK or WORLD_SIZE is set): {advice}")


@contextlib.contextmanager
def interrupt_on_signals() -> Iterator[None]:
    """Make `STOPS` raise `Interrupted` once, in the main thread; later ones wait for the clean-up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(signum: int, _: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(signum)

    nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    heard = (signum for signum in STOPS if signum != signal.SIGHUP or not nohup)
    before = {signum: signal.signal(signum, interrupt) for signum in heard}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def acquire(timeout: float, on_wait: Callable[[], None]) -> contextlib.AbstractContextManager[object]:
    """Take the lock for a ``with`` block.

    Args:
        timeout: seconds to wait at most; 0 does not wait.
        on_wait: called once if the lock is taken.

    Raises:
        NothingUsable: still taken after ``timeout``.
        LaunchError: the lock file cannot be opened.
    """
    file = Path(tempfile.gettempdir()) / LOCK_NAME
    lock = FileLock(file, mode=0o666)
    try:
        with contextlib.suppress(Timeout):
            return lock.acquire(timeout=0)
        on_wait()
        return lock.acquire(timeout=timeout, poll_interval=POLL_SECONDS)
    except Timeout:
        held = f"another autotune process measures on this machine, still after {timeout:g} s"
        raise NothingUsable(f"{held}, and timed trials must not overlap: wait, or end it ({file})") from None
    except OSError as error:
        raise LaunchError(f"{file}: the lock cannot be opened ({error.strerror}). Remove it, or set TMPDIR") from error


@contextlib.contextmanager
def same_cpus(inventory: Inventory, system: System | None = None) -> Iterator[None]:
    """Compare the CPUs and the quota of this process with ``inventory`` at the end of a ``with`` block.

    Masks, cpusets and quotas may change while a run measures, and CPUs may go offline.

    Raises:
        MachineChanged: they changed; also in place of an error that this caused.
    """
    try:
        yield
    finally:
        system, before = system or System(), inventory.budget
        online = set(online_cpus(system))
        logical = tuple(each for each in inventory.cpu.logical if each.id in online)
        now = budget.probe(system, replace(inventory.cpu, logical=logical))
        if (now.cpus, now.quota) != (before.cpus, before.quota):
            said = f"the CPUs of this run changed while it measured: {before.limit} before, {now.limit} now"
            raise MachineChanged(f"{said}. Figures cannot be compared: start it again")
