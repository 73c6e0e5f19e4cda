"""The scripts of the corpus: each is brought to its training and measured, or refused with its own reason."""

import importlib.util
from pathlib import Path

import pytest

from autotune.errors import UserCodeError
from autotune.knobs.task_facts import TaskFacts
from autotune.stats.outcome import Completed
from autotune.trial.parent.runner import Runner
from tests.processes.scripts.corpus import CORPUS, Script
from tests.processes.trial.running_scripts import baseline, running

pytestmark = pytest.mark.torch


def check(script: Script, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tune as far as a first trial of ``script`` and compare what is found with its row."""
    if script.needs and importlib.util.find_spec(script.needs) is None:
        pytest.skip(f"{script.needs} is not installed: pip install -c constraints.txt -e '.[frameworks]'")
    own = folder / "project"
    own.mkdir()
    with running(script.name, own, monkeypatch) as runner:
        if script.why_not is None:
            check_facts(script, runner.describe(), runner)
        else:
            with pytest.raises(UserCodeError) as raised:
                runner.describe()
            assert script.why_not in f"{raised.value} {raised.value.traceback}"
            if "processes of its own" in script.why_not:
                assert raised.value.traceback == "", "one sentence"
    left = [path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {path.suffix for path in left} == {".py"}, "nothing that it writes lands"


def check_facts(script: Script, facts: TaskFacts, runner: Runner) -> None:
    """Compare what is known of a script that tunes."""
    assert (facts.script, facts.unit) == (script.known_by, "samples" if script.known_by == "batches" else "steps")
    assert facts.no_fork_reason is None
    if script.processes:
        assert facts.why_not_several is None
        assert runner.several_seconds > 0
        assert {each.value for each in facts.left_out if each.knob == "backend"} == {"nccl", "mpi", "ccl"}
    elif script.apart is not None:
        assert str(facts.why_not_several).startswith("two processes started as torchrun does: ")
        assert script.apart in str(facts.why_not_several)
    outcome = baseline(runner, facts)
    assert isinstance(outcome, Completed), outcome
    assert outcome.measurement.rate > 0
    assert len(outcome.losses) > 0


@pytest.mark.parametrize("script", [each for each in CORPUS if each.daily], ids=lambda script: script.name)
def test_comes_to_its_training(script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(script, tmp_path, monkeypatch)
