"""Real processes: a task file whose import ends the trial server, or never ends."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from autotune.errors import AutotuneError, NothingUsable, UserCodeError
from autotune.knobs.settings import Settings
from autotune.trial import process_tree
from autotune.trial.parent.fork_servers import TrialSetup, trial_environment
from autotune.trial.parent.runner import Runner
from autotune.trial.paths import StudyPaths

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("source", "seconds", "error", "words"),
    [
        (
            "import ctypes; ctypes.string_at(0)\n",
            300.0,
            UserCodeError,
            "ended with exit code -11 while it was imported",
        ),
        ("import signal; signal.pause()\n", 0.5, NothingUsable, "the budget ended before it was imported"),
    ],
    ids=["it crashes", "the budget ends"],
)
def test_an_import_that_does_not_end_well_is_an_error(
    tmp_path: Path, source: str, seconds: float, error: type[AutotuneError], words: str
) -> None:
    task, paths, before = tmp_path / "model.py", StudyPaths.create(), process_tree.descendants(os.getpid())
    task.write_text(source)

    def environment(_: Settings) -> dict[str, str]:
        return trial_environment(os.environ, paths, threads=1, memory=2**34)

    with Runner(TrialSetup(task, paths, environment, tmp_path)) as runner:
        runner.deadline = time.monotonic() + seconds
        with pytest.raises(error, match=words):
            runner.describe()
    assert process_tree.descendants(os.getpid()) == before
    assert not paths.root.exists()
