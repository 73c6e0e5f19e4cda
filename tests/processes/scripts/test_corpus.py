"""The scripts of the corpus: each is brought to its training, or refused with its own reason."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from autotune.errors import UserCodeError
from tests.processes.scripts.corpus import BOUND, CORPUS, HARD_CASES, HERE, STYLES, Script
from tests.processes.trial.running_scripts import running

FEW = (
    "flat_script",
    "hf_trainer",
    "lightning_fit",
    "trainer_package.train",
    "lbfgs",
    "compiles_itself",
    "spawned_children",
    "own_processes",
    "long_prologue",
    "no_main_guard",
    "saves_when_interrupted",
)
"""One of a kind; `tests/slow/scripts` brings all of them to their training."""


def test_every_script_has_its_row() -> None:
    files = {path.stem for path in HERE.glob("*.py")} - {"__init__"}
    assert {script.name for script in CORPUS if not script.module} == files
    assert len({script.name for script in CORPUS}) == len(CORPUS)
    assert all((script.why_not is None) == script.tunes for script in CORPUS)


def check(script: Script, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bring ``script`` to its training and compare what is found with its row."""
    if script.needs and importlib.util.find_spec(script.needs) is None:
        pytest.skip(f"{script.needs} is not installed: pip install -c constraints.txt -e '.[frameworks]'")
    if script.name == "wants_cuda" and torch.cuda.is_available():
        pytest.skip("this machine has what the script wants")
    with running(script.name, folder, monkeypatch) as runner:
        if script.why_not is not None:
            with pytest.raises(UserCodeError) as raised:
                runner.describe(steps=False)
            assert script.why_not in f"{raised.value} {raised.value.traceback}"
            return
        facts = runner.describe(steps=False)
        assert facts.script == script.known_by
        assert ((runner.warm().fork_point or {})["no_fork_reason"] is None) == script.fork_safe
    assert not any((folder / name.removeprefix("project/")).exists() for name in script.writes)


@pytest.mark.parametrize("name", FEW)
def test_comes_to_its_training(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(next(script for script in CORPUS if script.name == name), tmp_path, monkeypatch)


REST = [script for script in (*STYLES, *HARD_CASES, *BOUND) if script.name not in FEW]
