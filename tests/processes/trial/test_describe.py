"""Real processes: what the parent learns of a task, whatever running its step does."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from autotune.knobs.settings import Settings
from autotune.knobs.task import TaskFacts
from autotune.trial.parent import runner as runner_module
from autotune.trial.parent.fork_servers import TrialSetup, trial_environment
from autotune.trial.parent.runner import Runner
from autotune.trial.paths import StudyPaths

pytestmark = pytest.mark.torch

TASK = """
import ctypes
import os
import signal
from pathlib import Path

import torch
from torch import nn

CURRENT = {"batch_size": 8}
CALLS = []


def build_model():
    return nn.Linear(4, 3)


def build_dataset():
    return torch.utils.data.TensorDataset(torch.randn(64, 4), torch.arange(64) % 3)


def compute_loss(model, batch):
    CALLS.append(len(batch[0]))
    how = Path("behaviour").read_text()
    if how == "always segv" or (how == "later segv" and len(CALLS) > 3):
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
    paths = StudyPaths.create()

    def environment(_: Settings) -> dict[str, str]:
        return trial_environment(os.environ, paths, threads=1, memory=2**34)

    with Runner(TrialSetup(folder / "model.py", paths, environment, folder)) as runner:
        runner.warm()
        yield runner


def described(runner: Runner, how: str) -> TaskFacts:
    (runner.setup.origin / "behaviour").write_text(how)
    return runner.describe()


def test_a_mean_over_samples_may_be_shared(runner: Runner) -> None:
    facts = described(runner, "well")
    assert (facts.why_not_several, facts.warnings) == (None, ())
    assert facts.samples == 64


def test_a_sum_is_refused(runner: Runner) -> None:
    facts = described(runner, "sum")
    assert "off by 50%" in str(facts.why_not_several)
    assert facts.warnings == ()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("always segv", "the step failed, or takes too long"),
        ("later segv", "the step failed, or takes too long"),
        ("stops", "the step failed, or takes too long"),
        ("raises", "ValueError: expected 3 channels, got 4"),
    ],
)
def test_whatever_the_step_does_costs_only_what_it_would_tell(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, how: str, words: str
) -> None:
    if how == "stops":
        monkeypatch.setattr(runner_module, "STEP_SECONDS", (0.5, 0.5))
    facts = described(runner, how)
    assert facts.samples == 64
    assert facts.why_not_several is None
    assert len(facts.warnings) == 1
    assert words in facts.warnings[0]
