"""`autotune.tune` as a function call. What a run does is tested in `test_tune`."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import autotune
from autotune.errors import UsageError, UserCodeError
from autotune.trial.target import NEW_TASK, Target, recognise, started_script
from autotune.tuning import from_python
from autotune.tuning.options import Options

TRACEBACK = 'Traceback (most recent call last):\n  File "model.py", line 2, in build_model\nValueError: mine\n'


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What runs were asked for; they find nothing."""
    seen: list[Any] = []

    def run(target: Target, options: Options) -> Any:
        seen.append((target, options))
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
    Path("model.py").write_text(NEW_TASK)
    Path("train.py").write_text("print('trains')")
    assert autotune.tune("model.py", budget=30.0, profile="out.yaml", level="amp", only=("threads",)) == "found"
    autotune.tune("train.py", arguments=["--epochs", "3"], budget="5m")
    assert runs == [
        (recognise(Path("model.py")), Options(budget=30.0, profile=Path("out.yaml"), level="amp", only=("threads",))),
        (started_script("train.py", ["--epochs", "3"]), Options(budget=300.0)),
    ]
    with pytest.raises(UsageError, match="budget 'soon': write a duration"):
        autotune.tune("model.py", budget="soon")


def test_errors_of_the_users_code_show_their_own_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(target: Target, options: Options) -> Any:
        raise UserCodeError(f"{target.name}: ValueError: mine", TRACEBACK)

    (tmp_path / "model.py").write_text(NEW_TASK)
    monkeypatch.setattr(from_python.run, "run", run)
    with pytest.raises(UserCodeError) as caught:
        autotune.tune(tmp_path / "model.py")
    assert str(caught.value) == "model: ValueError: mine"
    assert caught.value.traceback == TRACEBACK
    assert TRACEBACK in "".join(traceback.format_exception(caught.value))
