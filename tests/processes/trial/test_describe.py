"""Real processes: what the parent learns of a task, whatever running its step does, and however its import ends."""

import os
import time
from pathlib import Path

import pytest

from autotune.errors import NothingUsable, UserCodeError
from autotune.knobs.task_facts import TaskFacts
from autotune.trial import process_tree
from autotune.trial.parent import runner as runner_module
from autotune.trial.parent.runner import Runner
from tests.processes.trial.running_scripts import running_task

pytestmark = pytest.mark.torch


def described(runner: Runner, how: str) -> TaskFacts:
    (runner.setup.origin / "behaviour").write_text(how)
    return runner.describe()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("segv", "the step failed, or takes too long"),
        ("stops_itself", "the step failed, or takes too long"),
        ("raises", "ValueError: expected 3 channels, got 4"),
    ],
)
def test_whatever_the_step_does_costs_only_what_it_would_tell(runner, monkeypatch, how, words) -> None:
    if how == "stops_itself":
        monkeypatch.setattr(runner_module, "STEP_SECONDS", 0.5)
    facts = described(runner, how)
    assert facts.samples == 64
    assert facts.why_not_several is None
    assert len(facts.warnings) == 1
    assert words in facts.warnings[0]


@pytest.mark.parametrize(
    ("source", "seconds", "error", "words"),
    [
        ("import ctypes; ctypes.string_at(0)", 300.0, UserCodeError, "its process was killed by SIGSEGV"),
        ("import os; os.kill(os.getppid(), 9)", 300.0, UserCodeError, "was killed by signal 9 .Killed. while it"),
        ("import signal; signal.pause()", 0.5, NothingUsable, "the budget ended before it was imported"),
    ],
    ids=["it crashes", "the server is killed", "the budget ends"],
)
def test_an_import_that_does_not_end_well_is_an_error(tmp_path: Path, source, seconds, error, words) -> None:
    (tmp_path / "model.py").write_text(source)
    before = process_tree.descendants(os.getpid())
    with running_task(tmp_path / "model.py") as runner:
        runner.deadline = time.monotonic() + seconds
        with pytest.raises(error, match=words):
            runner.describe()
    assert process_tree.descendants(os.getpid()) == before
