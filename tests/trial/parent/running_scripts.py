"""A runner for scripts of the corpus, with real processes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autotune.trial.parent.runner import Runner
from autotune.trial.parent.trial_environment import trial_environment
from autotune.trial.parent.trial_setup import TrialSetup
from autotune.trial.paths import StudyPaths
from autotune.trial.script import Script, started_script
from tests.processes.scripts import corpus

PATIENCE = 120.0
STEPS = 100_000
SCRIPTS = {script.name: script for script in corpus.CORPUS}


@contextmanager
def running(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> Iterator[Runner]:
    """A runner for a script of the corpus."""
    words = [*corpus.place(SCRIPTS[name], folder, STEPS), *more]
    monkeypatch.chdir(folder)
    target: Script = started_script(words[0], words[1:])
    paths = StudyPaths.create()
    setup = TrialSetup(
        target.path,
        paths,
        lambda _: trial_environment(os.environ, paths, threads=2, memory=2**33),
        folder,
        script=target,
    )
    with Runner(setup) as runner:
        runner.deadline = time.monotonic() + PATIENCE
        yield runner
