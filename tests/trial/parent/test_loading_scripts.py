"""Real processes: a script that does not come to its training ends with what the user needs to know."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from autotune.errors import NothingUsable, UserCodeError
from autotune.knobs.settings import Settings
from autotune.trial.parent.runner import Runner
from autotune.trial.parent.trial_environment import trial_environment
from autotune.trial.parent.trial_setup import TrialSetup
from autotune.trial.paths import StudyPaths
from autotune.trial.script import Script

pytestmark = pytest.mark.torch

USAGE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
print("reads arguments")
parser.parse_args()
"""
HANGS = """
import signal
def prepare_data():
    signal.pause()
prepare_data()
"""


def load(folder: Path, source: str, seconds: float) -> None:
    (folder / "train.py").write_text(source)
    script, paths = Script(folder / "train.py", (), "train.py"), StudyPaths.create()

    def environment(_: Settings) -> dict[str, str]:
        return trial_environment(os.environ, paths, threads=1, memory=2**34)

    with Runner(TrialSetup(script.path, paths, environment, folder, script=script)) as runner:
        runner.deadline = time.monotonic() + seconds
        runner.describe()


def test_a_script_that_leaves_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(UserCodeError, match="SystemExit: 2") as raised:
        load(tmp_path, USAGE, 300.0)
    assert "reads arguments" in raised.value.traceback
    assert "the following arguments are required: --data" in raised.value.traceback


def test_a_script_that_could_not_be_started_is_not_blamed(tmp_path: Path) -> None:
    with pytest.raises(NothingUsable, match="the budget ended before the script was started"):
        load(tmp_path, HANGS, 0.1)
