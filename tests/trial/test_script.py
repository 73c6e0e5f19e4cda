"""What is a script, what a task file, and how a script was written on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import ContractError, UsageError
from autotune.trial.script import Script, is_script, recognise_target, started_script
from autotune.trial.task_file import TaskFile

TASK = "def build_model(): ...\ndef build_dataset(): ...\ndef compute_loss(model, batch): ...\n"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "script"),
    [
        (TASK, False),
        (TASK + "if __name__ == '__main__':\n    print(build_model())\n", False),
        ("def main(): ...\nif __name__ == '__main__':\n    main()\n", True),
        ("import torch\nfor step in range(3):\n    pass\n", True),
        ("with open('x') as file:\n    print(file)\n", True),
        ("try:\n    main()\nexcept KeyboardInterrupt:\n    pass\n", True),
        ("def build_model(): ...\ntrain(build_model())\n", True),
        ("def build_model(): ...\n", False),
        ("import torch\nLR = 0.1\n", False),
    ],
)
def test_a_script_does_something(text: str, script: bool) -> None:
    Path("train.py").write_text(text)
    assert is_script(Path("train.py")) == script


def test_a_script_keeps_its_arguments_to_the_letter(elsewhere: Path) -> None:
    Path("train.py").write_text("main()")
    found = recognise_target("./train.py", ["--epochs", "3", "--", "a b", ""], network=True)
    assert found == Script(elsewhere / "train.py", ("--epochs", "3", "--", "a b", ""), "./train.py", network=True)
    assert found.name == "train"
    assert isinstance(found, Script)
    assert Script.from_dict(found.as_dict()) == found


def test_a_task_file_takes_no_arguments() -> None:
    Path("model.py").write_text(TASK)
    assert recognise_target("model.py") == TaskFile(
        Path("model.py").resolve(), ("build_model", "build_dataset", "compute_loss")
    )
    with pytest.raises(UsageError, match="takes no arguments: --epochs 3"):
        recognise_target("model.py", ["--epochs", "3"])


def test_half_a_task_file_is_told_what_it_lacks() -> None:
    Path("model.py").write_text("def build_model(): ...\n")
    with pytest.raises(ContractError, match="lacks build_dataset"):
        recognise_target("model.py")


@pytest.mark.parametrize(
    ("file", "module", "name"),
    [("pack/train.py", "pack.train", "train"), ("pack/__main__.py", "pack", "pack"), ("tool.py", "tool", "tool")],
)
def test_a_module_is_found_without_importing_it(elsewhere: Path, file: str, module: str, name: str) -> None:
    (elsewhere / file).parent.mkdir(exist_ok=True)
    (elsewhere / file).write_text("raise SystemExit('imported')")
    found = recognise_target(module, ["x"], module=True)
    assert isinstance(found, Script)
    assert (found.path, found.module, found.name, found.arguments) == (elsewhere / file, module, name, ("x",))


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(UsageError, match="no such module"):
        recognise_target("nowhere.train", module=True)
    with pytest.raises(UsageError, match=r"nowhere.py: no such script"):
        started_script("nowhere.py", [])
    with pytest.raises(UsageError, match="no such file"):
        recognise_target("nowhere.py")


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
