"""Real processes: what happens while a script is loaded, and what the user is told where it does not train."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autotune.errors import NothingUsable, UserCodeError
from autotune.knobs.baseline import baseline_settings
from autotune.knobs.settings import Settings
from autotune.probes.inventory import probe
from autotune.stats.outcome import Completed
from autotune.trial.child_command import child_command
from autotune.trial.parent import zygotes
from autotune.trial.parent.runner import Runner
from autotune.trial.parent.trial_bench import TrialBench
from autotune.trial.parent.trial_environment import trial_environment
from autotune.trial.parent.trial_setup import TrialSetup
from autotune.trial.paths import StudyPaths
from autotune.trial.script import Script
from tests.trial.isolation.users_world import WAYS

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
LIBRARY = """
from pathlib import Path
(Path.home() / ".keras").mkdir(exist_ok=True)
(Path.home() / ".keras" / "keras.json").write_text("written by an import")
"""
CANNOT_BE_FORKED = """
import a_library
import threading
import torch
threading.Thread(target=threading.Event().wait, daemon=True).start()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in torch.utils.data.DataLoader(torch.randn(100_000, 4), batch_size=4):
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
"""


@contextmanager
def running(folder: Path, source: str, seconds: float) -> Iterator[Runner]:
    """A runner of the script ``source`` in ``folder``."""
    (folder / "train.py").write_text(source)
    script, paths = Script(folder / "train.py", (), "train.py"), StudyPaths.create()

    def environment(_: Settings) -> dict[str, str]:
        return trial_environment(os.environ, paths, threads=1, memory=2**34)

    with Runner(TrialSetup(script.path, paths, environment, folder, script=script)) as runner:
        runner.deadline = time.monotonic() + seconds
        yield runner


def test_a_script_that_leaves_is_quoted(tmp_path: Path) -> None:
    with running(tmp_path, USAGE, 300.0) as runner, pytest.raises(UserCodeError, match="SystemExit: 2") as raised:
        runner.describe()
    assert "reads arguments" in raised.value.traceback
    assert "the following arguments are required: --data" in raised.value.traceback


def test_a_script_that_could_not_be_started_is_not_blamed(tmp_path: Path) -> None:
    reason = "the budget ended before the script was started"
    with running(tmp_path, HANGS, 0.1) as runner, pytest.raises(NothingUsable, match=reason):
        runner.describe()


@pytest.mark.parametrize("way", ["root", "no namespaces"])
def test_what_imports_write_does_not_land_where_the_script_cannot_be_forked(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its imports are done before trials are forked, and trials run it from its start."""
    packages, home = tmp_path / "packages", tmp_path / "home"
    packages.mkdir()
    home.mkdir()
    (packages / "a_library.py").write_text(LIBRARY)
    monkeypatch.setenv("PYTHONPATH", str(packages))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(zygotes, "child_command", lambda *words: [*WAYS[way].start, *child_command(*words)])
    with running(tmp_path, CANNOT_BE_FORKED, 120.0) as runner:
        facts = runner.describe()
        gaps = [warning for warning in facts.warnings if "can reach the network without a proxy" in warning]
        assert len(gaps) == (way == "no namespaces")
        assert "1 extra thread" in (runner.warm().frontier or {})["no_fork_reason"]
        settings = baseline_settings(facts, probe())
        for _ in range(2):
            outcome = TrialBench(runner, settings, 0, 60.0).measure(settings, 0.0, runner.deadline)
            assert isinstance(outcome, Completed), outcome
        scratch = runner.setup.paths.root
    assert [*home.iterdir()] == []
    assert not scratch.exists()
