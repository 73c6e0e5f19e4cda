"""Where scripts train, and what a trial of each is: with real processes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from autotune.errors import UserCodeError
from autotune.knobs.baseline import baseline_settings
from autotune.knobs.task import TaskFacts
from autotune.probes.inventory import probe
from autotune.stats.outcome import Completed
from autotune.trial.parent.runner import Runner
from autotune.trial.parent.trial_bench import TrialBench
from tests.processes.trial.running_scripts import PATIENCE, running

pytestmark = pytest.mark.torch


@dataclass(frozen=True)
class Expected:
    """What is found of a script."""

    name: str
    known_by: str
    skip: int = 0
    no_fork_reason: str | None = None
    unit: str = "samples"


@pytest.mark.parametrize(
    "expected",
    [
        Expected("plain_loop", "batches"),
        Expected("evaluation_first", "batches"),
        Expected("memory_mapped", "steps", unit="steps"),
        Expected("optimizer_free", "backward passes", unit="steps"),
        Expected("background_writer", "batches", no_fork_reason="1 extra thread"),
    ],
    ids=lambda expected: expected.name,
)
def test_a_trial_is_the_script_from_where_it_trains(
    expected: Expected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(tmp_path.rglob("*"))
    with running(expected.name, tmp_path, monkeypatch) as runner:
        facts = runner.describe()
        assert (facts.script, facts.skip, facts.unit) == (expected.known_by, expected.skip, expected.unit)
        server = runner.warm()
        assert server.fork_point is not None
        reason = server.fork_point["no_fork_reason"]
        assert reason is None if expected.no_fork_reason is None else expected.no_fork_reason in reason
        outcome = _baseline(runner, facts)
        assert isinstance(outcome, Completed), outcome
        assert outcome.measurement is not None
        assert outcome.measurement.rate > 0
        assert len(outcome.losses) > 0
        after = [path for path in sorted(tmp_path.rglob("*")) if "__pycache__" not in path.parts]
    assert len(after) == len(before) + len([p for p in after if p.suffix == ".py"])


def _baseline(runner: Runner, facts: TaskFacts) -> object:
    settings = baseline_settings(facts, probe())
    return TrialBench(runner, settings, 0, PATIENCE).measure(settings, 0.0, time.monotonic() + PATIENCE)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wants_network", "--allow-network"),
        ("wants_input", "asks for input"),
        ("missing_dataset", "train.csv"),
    ],
)
def test_what_cannot_be_tuned_says_why(name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(name, tmp_path, monkeypatch) as runner, pytest.raises(UserCodeError) as caught:
        runner.describe()
    assert words in str(caught.value)
