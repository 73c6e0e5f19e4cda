"""A target is recognised as a task file or a script by its syntax tree."""

import codecs
from pathlib import Path

import pytest

from autotune.errors import ContractError, UsageError
from autotune.trial.target import (
    NEW_TASK,
    REQUIRED,
    Script,
    TaskFile,
    is_script,
    recognise,
    recognise_target,
    started_script,
)

WHOLE = """
def build_model(): ...
def build_dataset(): ...
def compute_loss(model, batch): ...
"""


def task(folder: Path, text: str | bytes) -> TaskFile:
    """What is recognised in a file that holds ``text``."""
    file = folder / "my_model.py"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return recognise(file)


def refused(folder: Path, text: str | bytes, kind: type[UsageError] = ContractError) -> str:
    """Why it is not."""
    with pytest.raises(UsageError) as error:
        task(folder, text)
    assert type(error.value) is kind
    return str(error.value)


class TestRecognised:
    @pytest.mark.parametrize("text", ["CURRENT = dict(batchsize=64)", 'CURRENT = {"batch_sze": 64, **{}}'])
    def test_a_typo_in_a_written_current(self, tmp_path: Path, text: str) -> None:
        assert "no such knob; did you mean batch_size?" in refused(tmp_path, f"{WHOLE}{text}\n")
        assert task(tmp_path, f"{WHOLE}CURRENT = dict(num_workers=N, **MORE)\nCURRENT['x'] = 1\n").name == "my_model"

    def test_without_running_it(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        canary = tmp_path / "canary"
        top = f"open({str(canary)!r}, 'w').close()\nprint('ran')\nraise SystemExit(7)\nimport no_such_module\n"
        assert task(tmp_path, top + WHOLE).name == "my_model"
        assert not canary.exists()
        assert capsys.readouterr().out == ""

    @pytest.mark.parametrize(
        "text",
        [
            "from parts import build_model, build_dataset, compute_loss",
            "from parts import make as build_model, data as build_dataset, loss as compute_loss",
            "build_model, (build_dataset, compute_loss) = parts",
            "if True:\n def build_model(): ...\nelse:\n pass\ndef build_dataset(): ...\nfrom a import compute_loss",
            "try:\n from a import build_model\nexcept ImportError:\n def build_dataset(): ...\nelse:\n x = 1\n"
            "finally:\n def compute_loss(m, b): ...",
            *(
                f"def build_model(size=3): ...\ndef build_dataset(*a): ...\ndef compute_loss({parameters}): ..."
                for parameters in ("model, batch", "model, batch, *, weight=1.0", "*parts", "model, *rest, **options")
            ),
            codecs.BOM_UTF8 + WHOLE.encode(),
            b"# -*- coding: latin-1 -*-\n# caf\xe9\n" + WHOLE.encode(),
            WHOLE.replace("\n", "\r\n"),
            NEW_TASK,
        ],
        ids=range(13),
    )
    def test_however_it_is_bound_and_in_any_encoding_that_python_reads(self, tmp_path: Path, text: str | bytes) -> None:
        found = task(tmp_path, text)
        assert (found.path, found.name) == (tmp_path / "my_model.py", "my_model")


class TestRefused:
    @pytest.mark.parametrize("missing", REQUIRED)
    def test_the_lines_to_add_are_shown(self, tmp_path: Path, missing: str) -> None:
        kept = "\n".join(line for line in WHOLE.splitlines() if missing not in line)
        message = refused(tmp_path, kept)
        assert f"lacks {missing}. Add:" in message
        assert REQUIRED[missing] in message
        assert not any(lines in message for name, lines in REQUIRED.items() if name != missing)

    @pytest.mark.parametrize(
        ("text", "name", "line", "count"),
        [
            ("\n\ndef compute_loss(model, batch, extra): ...", "compute_loss", 3, 2),
            ("def compute_loss(model, batch, *, weight): ...", "compute_loss", 1, 2),
            ("def build_model(config): ...", "build_model", 1, 0),
            ("def build_optimizer(parameters, lr): ...", "build_optimizer", 1, 1),
            ("def count_items(): ...", "count_items", 1, 1),
        ],
    )
    def test_wrong_parameters_name_the_line(self, tmp_path: Path, text: str, name: str, line: int, count: int) -> None:
        others = "\n".join(row for row in WHOLE.splitlines() if name not in row)
        message = refused(tmp_path, f"{text}\n{others}")
        assert f"my_model.py:{line}: {name} must take {count} positional parameter(s)" in message
        assert f"def {name}(" in message.partition("Write:")[2]

    @pytest.mark.parametrize("line", ["def broken(:", "def broken(a, a): ...", "nonlocal broken"])
    def test_syntax_errors_name_file_and_line(self, tmp_path: Path, line: str) -> None:
        message = refused(tmp_path, f"{WHOLE}{line}\n", UsageError)
        assert "my_model.py:5: not valid Python" in message

    @pytest.mark.parametrize(
        "data",
        [b"\x7fELF\x02\x01\x00\x00\xff\xfe", b"PK\x03\x04\xff\xff", b"# -*- coding: nonsense -*-\n", b"\xff\xfe"],
    )
    def test_binary_files_are_no_python(self, tmp_path: Path, data: bytes) -> None:
        message = refused(tmp_path, data, UsageError)
        assert ("not valid Python: " in message, "my_model.py:0" in message) == (True, False)

    def test_deep_nesting_is_an_answer_not_a_crash(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="not"):
            task(tmp_path, "x = " + "[" * 5000 + "]" * 5000)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "script"),
    [
        (WHOLE + "if __name__ == '__main__':\n    print(build_model())\n", False),
        (WHOLE + "for step in range(3):\n    compute_loss(model, batch).backward()\n", True),
        ("import torch\nfor step in range(3):\n    pass\n", True),
        ("with open('x') as file:\n    print(file)\n", True),
        ("try:\n    main()\nexcept KeyboardInterrupt:\n    pass\n", True),
        ("def build_model(): ...\ntrain(build_model())\n", True),
        ("def build_model(): ...\n", False),
        ("import torch\nLR = 0.1\n", False),
        ("import training\n", True),
        ("from model import build_model\n", False),
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
