"""Real processes: what the parent learns of a task, whatever running its step does, and however its import ends."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.errors import AutotuneError, NothingUsable, UserCodeError
from autotune.knobs.task import TaskFacts
from autotune.trial import process_tree
from autotune.trial.parent import runner as runner_module
from autotune.trial.parent.runner import Runner
from tests.processes.trial.running_scripts import running_task

pytestmark = pytest.mark.torch

TASK = """
import ctypes
import os
import signal
from pathlib import Path

import torch
from torch import nn

CURRENT = {"batch_size": 8}


def build_model():
    return nn.Linear(4, 3)


def build_dataset():
    return torch.utils.data.TensorDataset(torch.randn(64, 4), torch.arange(64) % 3)


def compute_loss(model, batch):
    how = Path("behaviour").read_text()
    if how == "always segv":
        ctypes.string_at(0)
    if how == "stops":
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "raises":
        raise ValueError("expected 3 channels, got 4")
    return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="sum" if how == "sum" else "mean")
"""


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    folder = tmp_path_factory.mktemp("described")
    (folder / "model.py").write_text(TASK)
    with running_task(folder / "model.py") as runner:
        runner.warm()
        yield runner


def described(runner: Runner, how: str) -> TaskFacts:
    (runner.setup.origin / "behaviour").write_text(how)
    return runner.describe()


def test_a_sum_is_refused(runner: Runner) -> None:
    facts = described(runner, "sum")
    assert "off by 50%" in str(facts.why_not_several)
    assert facts.warnings == ()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("always segv", "the step failed, or takes too long"),
        ("stops", "the step failed, or takes too long"),
        ("raises", "ValueError: expected 3 channels, got 4"),
    ],
)
def test_whatever_the_step_does_costs_only_what_it_would_tell(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, how: str, words: str
) -> None:
    if how == "stops":
        monkeypatch.setattr(runner_module, "STEP_SECONDS", 0.5)
    facts = described(runner, how)
    assert facts.samples == 64
    assert facts.why_not_several is None
    assert len(facts.warnings) == 1
    assert words in facts.warnings[0]


@pytest.mark.parametrize(
    ("source", "seconds", "error", "words"),
    [
        ("import ctypes; ctypes.string_at(0)", 300.0, UserCodeError, "exit code -11 while it was imported"),
        ("import signal; signal.pause()", 0.5, NothingUsable, "the budget ended before it was imported"),
    ],
    ids=["it crashes", "the budget ends"],
)
def test_an_import_that_does_not_end_well_is_an_error(
    tmp_path: Path, source: str, seconds: float, error: type[AutotuneError], words: str
) -> None:
    (tmp_path / "model.py").write_text(source)
    before = process_tree.descendants(os.getpid())
    with running_task(tmp_path / "model.py") as runner:
        runner.deadline = time.monotonic() + seconds
        with pytest.raises(error, match=words):
            runner.describe()
    assert process_tree.descendants(os.getpid()) == before
