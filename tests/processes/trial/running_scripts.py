"""Runners for scripts and task files, with real processes."""

import functools
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from autotune.knobs.settings import Settings
from autotune.knobs.stated import baseline_settings
from autotune.knobs.task_facts import TaskFacts
from autotune.launch import line
from autotune.probes.inventory import Inventory, probe
from autotune.stats.outcome import Outcome
from autotune.trial.parent.fork_servers import TrialSetup, trial_environment
from autotune.trial.parent.runner import Runner
from autotune.trial.parent.trial_bench import TrialBench
from autotune.trial.paths import StudyPaths
from tests.processes.scripts import corpus

PATIENCE = 300.0
STEPS = 100_000
SCRIPTS = {script.name: script for script in corpus.CORPUS}


def _waiting(settings: Settings) -> dict[str, str]:
    policy = settings.omp_wait_policy
    return {} if policy == "default" else {"OMP_WAIT_POLICY": policy}


@contextmanager
def running(
    script: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *more: str,
    seconds: float = PATIENCE,
    launcher: Sequence[str] = (),
) -> Iterator[Runner]:
    """A runner for a script of the corpus, by its name, or for one whose text is given; started by ``launcher``."""
    if "\n" in script:
        (folder / "train.py").write_text(script)
        words = ["train.py"]
    else:
        words = corpus.place(SCRIPTS[script], folder, STEPS)
    monkeypatch.chdir(folder)
    module = words[0] == "-m"
    words = [*launcher, *words] if launcher else words[module:]
    target = line.script(words[0], [*words[1:], *more], module=module and not launcher)
    paths = StudyPaths.create()
    setup = TrialSetup(
        target.path,
        paths,
        lambda settings: trial_environment(os.environ | _waiting(settings), paths, threads=2, memory=2**33),
        folder,
        script=target,
    )
    with Runner(setup) as runner:
        runner.deadline = time.monotonic() + seconds
        yield runner


@contextmanager
def running_task(task: Path) -> Iterator[Runner]:
    """A runner for a task file, in its folder; nothing of it is left."""
    paths = StudyPaths.create()
    environment = trial_environment(os.environ, paths, threads=2, memory=2**34)
    with Runner(TrialSetup(task, paths, lambda _: environment, task.parent)) as runner:
        yield runner
    assert not paths.root.exists()


@functools.cache
def here() -> Inventory:
    """Probe this machine once: it takes seconds."""
    return probe()


def baseline(runner: Runner, facts: TaskFacts) -> Outcome:
    """Measure the script as it is."""
    settings = baseline_settings(facts, here())
    return TrialBench(runner, settings, 0, 60.0).measure(settings, 0.0, runner.deadline)
