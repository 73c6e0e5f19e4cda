"""`autotune.tune` as a function call. What a run does is tested in `test_tune`."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import autotune
from autotune.errors import UsageError, UserCodeError
from autotune.trial.new_task import TASK
from autotune.trial.paths import StudyPaths
from autotune.trial.target import Target, recognise, started_script
from autotune.tuning import from_python
from autotune.tuning.options import Options

FUNCTIONS: dict[str, Any] = {
    "build_model": lambda: None,
    "build_dataset": list,
    "compute_loss": lambda model, batch: 0,
}
TRACEBACK = 'Traceback (most recent call last):\n  File "<cell 3>", line 2, in build_model\nValueError: mine\n'


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What runs were asked for; they find nothing, and read their task file."""
    seen: list[Any] = []

    def run(target: Target, options: Options, paths: StudyPaths | None) -> Any:
        seen.append((target, options, paths, target.path.read_text() if paths else ""))
        return SimpleNamespace(profile="found")

    monkeypatch.setattr(from_python.run, "run", run)
    return seen


def test_names_are_those_exported() -> None:
    assert dir(autotune) == sorted(autotune.__all__) == ["__version__", "load", "tune"]
    assert autotune.tune is from_python.tune


def test_others_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'tuna'"):
        autotune.tuna  # noqa: B018


def test_tune_passes_options_on(runs: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(TASK)
    assert autotune.tune("model.py", budget=30.0, profile="out.yaml", level="amp", only=("threads",)) == "found"
    expected = Options(budget=30.0, profile=Path("out.yaml"), level="amp", only=("threads",))
    assert runs == [(recognise(Path("model.py")), expected, None, "")]


def test_a_budget_may_be_text(runs: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(TASK)
    autotune.tune("model.py", budget="5m")
    assert runs[0][1] == Options(budget=300.0)
    with pytest.raises(UsageError, match="budget 'soon': write a duration"):
        autotune.tune("model.py", budget="soon")


def test_a_script_takes_arguments(runs: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print('trains')")
    autotune.tune("train.py", arguments=["--epochs", "3"])
    assert runs[0][0] == started_script("train.py", ["--epochs", "3"])


def test_functions_become_a_task_file_of_this_run_only(runs: list[Any]) -> None:
    autotune.tune(**FUNCTIONS, current={"batch_size": 8}, name="cells", budget=30.0)
    [(task, options, paths, text)] = runs
    assert task.name == "cells"
    assert task.path.parent == paths.root
    assert "\nCURRENT = " in text
    assert options == Options(budget=30.0)
    assert not paths.root.exists()


@pytest.mark.parametrize("extra", [{"name": "x"}, {"current": {}}, {"build_model": lambda: None}])
def test_a_file_and_functions_are_refused(extra: dict[str, Any], runs: list[Any]) -> None:
    with pytest.raises(UsageError, match="not both"):
        autotune.tune("model.py", **extra)
    assert not runs


def test_a_wrong_function_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(UsageError):
        autotune.tune(build_model=lambda: None)
    assert list(tmp_path.iterdir()) == []


def test_errors_of_the_functions_show_their_own_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(target: Target, options: Options, paths: StudyPaths) -> Any:
        raise UserCodeError(f"{target.path}: ValueError: mine", TRACEBACK)

    monkeypatch.setattr(from_python.run, "run", run)
    with pytest.raises(UserCodeError) as caught:
        autotune.tune(**FUNCTIONS)
    assert str(caught.value) == "notebook: ValueError: mine"
    assert caught.value.traceback == TRACEBACK
    assert TRACEBACK in "".join(traceback.format_exception(caught.value))
