"""Scripts are told from task files by their syntax tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.trial.script import is_script

MAIN = "def main():\n    pass\n\nif __name__ == '__main__':\n    "


@pytest.mark.parametrize(
    "source",
    ["main()", MAIN + "main()", MAIN + "raise SystemExit(main())", MAIN + "losses = main()", "model = train()"],
)
def test_a_file_that_does_something_is_a_script(tmp_path: Path, source: str) -> None:
    (tmp_path / "train.py").write_text(source)
    assert is_script(tmp_path / "train.py")


@pytest.mark.parametrize("source", ["import torch", "WIDTH = 3", "DATA = read()\ndef build_model(): pass"])
def test_a_task_file_that_lacks_something_is_none(tmp_path: Path, source: str) -> None:
    (tmp_path / "model.py").write_text(source)
    assert not is_script(tmp_path / "model.py")
