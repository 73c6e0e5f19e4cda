"""Threads of libraries other than PyTorch, such as NumPy's BLAS: as many in a trial as in the user's run.

A fork server has one thread, so they were loaded with one.
"""

from __future__ import annotations

import os

import psutil

from autotune.knobs.settings import Settings
from autotune.knobs.worker_threads import set_threads
from autotune.trial import process_tree
from autotune.trial.target import THREAD_VARIABLES, stated_threads


def as_in_the_run(settings: Settings) -> None:
    """Put the user's own numbers in force, in libraries that are loaded and for those that are loaded later."""
    own = {name: value for name, value in stated_threads(os.environ).items() if value.isdigit() and int(value) > 0}
    if settings.processes > 1:
        own = {"OMP_NUM_THREADS": str(settings.threads)} | own
    for name in THREAD_VARIABLES:
        os.environ.pop(name, None)
    os.environ.update(own)
    cpus = len(psutil.Process().cpu_affinity()) if process_tree.LINUX else psutil.cpu_count() or 1
    set_threads(lambda variables: next((int(own[name]) for name in variables if name in own), cpus))


def of_workers() -> float | None:
    """Return the threads that each loader worker kept busy, on average; None if none has worked."""
    busy = alone = 0.0
    for pid in process_tree.descendants(os.getpid()):
        try:
            threads = psutil.Process(pid).threads()
        except psutil.Error:  # it has ended
            continue
        busy += sum(each.user_time + each.system_time for each in threads)
        alone += sum(each.user_time + each.system_time for each in threads if each.id == pid)
    return busy / alone if alone else None
