"""Opens the runner of a target: one machine-wide lock, a scratch folder, signals that clean up."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from autotune.errors import UsageError
from autotune.knobs.affinity import plan
from autotune.knobs.omp_wait_policy import WAIT_VARIABLES
from autotune.knobs.settings import Settings
from autotune.launch.environment import INHERITED, environment, scrub
from autotune.probes.facts import Inventory
from autotune.probes.memory import oom_kills
from autotune.probes.system import System
from autotune.trial.parent.fork_servers import TrialSetup, trial_environment
from autotune.trial.parent.runner import Runner
from autotune.trial.paths import StudyPaths, remove_abandoned
from autotune.trial.target import Script, Target
from autotune.tuning import host_lock as lock
from autotune.tuning.events import Observer, StageStarted, ignore
from autotune.tuning.host_signals import interrupt_on_signals


@contextmanager
def open_runner(
    target: Target,
    inventory: Inventory,
    seed: int,
    patience: float,
    observe: Observer = ignore,
    paths: StudyPaths | None = None,
) -> Iterator[Runner]:
    """A runner for ``target`` while no other run times anything on this machine; everything is gone afterwards.

    Args:
        target: the task file or script.
        inventory: this machine.
        seed: of data order and weights.
        patience: seconds to wait for another run to end.
        observe: called with an event for every wait.
        paths: the scratch folder, which is removed with the runner; a new one if None.

    Raises:
        NothingUsable: another run held the machine for ``patience``.
        UsageError: the working folder is gone.
        Interrupted: on SIGINT or SIGTERM.
    """
    system = System()
    words = "waiting for the tuning run of process {}"
    waiting = lock.acquire(patience, lambda pid: observe(StageStarted(words.format(pid))))
    with interrupt_on_signals(), waiting:
        remove_abandoned()
        origin = _working_folder()
        paths = paths or StudyPaths.create()
        setup = TrialSetup(
            target.path,
            paths,
            partial(start_environment, inventory, paths),
            origin,
            seed,
            script=target if isinstance(target, Script) else None,
            users_threads=os.environ.get("OMP_NUM_THREADS", ""),
            oom_kills=lambda: oom_kills(system),
            binding=partial(plan, inventory=inventory),
        )
        with Runner(setup) as runner:
            yield runner


def _working_folder() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise UsageError("the working folder was deleted: change to one that exists") from error


def start_environment(inventory: Inventory, paths: StudyPaths, settings: Settings) -> dict[str, str]:
    """Environment of the fork server for what a process must start with of ``settings``."""
    waiting = {name: value for name, value in os.environ.items() if name in WAIT_VARIABLES}
    tuned = environment(settings, inventory, waiting).set
    inherited = {name: value for name, value in tuned.items() if name in INHERITED}
    threads, memory = inventory.budget.threads, inventory.memory.limit
    return trial_environment(scrub(os.environ), paths, threads=threads, memory=memory, tuned=inherited)
