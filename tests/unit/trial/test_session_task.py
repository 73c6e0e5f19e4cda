"""Functions of one Python process, written there and loaded in another, as a trial's process does."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import ContractError, UsageError
from autotune.trial import session_task

REST = "rest = dict(build_dataset=lambda: [1], compute_loss=lambda model, batch: 0)"


def build_model() -> str:
    return "a model"


def build_dataset() -> list[int]:
    return [1, 2]


def compute_loss(model: Any, batch: Any) -> int:
    return 0


PARTS: dict[str, Any] = {"build_model": build_model, "build_dataset": build_dataset, "compute_loss": compute_loss}


def python(code: str, folder: Path, stdin: bool = False) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a process of its own, by ``-c`` or on its standard input."""
    where, text = ("-", code) if stdin else ("-c", None)
    command = [sys.executable, where, *([] if stdin else [code])]
    return subprocess.run(command, input=text, cwd=folder, capture_output=True, text=True, timeout=60)


def built_elsewhere(session: str, folder: Path, stdin: bool = False) -> str:
    """What ``build_model()`` of ``session`` prints in another process."""
    (folder / "scratch").mkdir()
    write = f"""
        {REST}
        from pathlib import Path
        from autotune.trial import session_task
        print(session_task.write(dict(build_model=build_model, **rest), "own", Path("scratch").resolve()))
    """
    written = python(textwrap.dedent(session) + textwrap.dedent(write), folder, stdin)
    assert written.returncode == 0, written.stderr
    load = f"""
        import runpy, sys, traceback
        try:
            print(runpy.run_path({written.stdout.strip()!r})["build_model"]())
        except ValueError:
            sys.exit(traceback.format_exc())
    """
    (folder / "trial").mkdir()
    loaded = python(textwrap.dedent(load), folder / "trial")
    assert loaded.returncode == 0, loaded.stderr
    return loaded.stdout.strip()


SESSIONS = {
    "a function": "def build_model(): return 'built'",
    "a lambda": "build_model = lambda: 'built'",
    "a global": "word = 'built'\ndef build_model(): return word",
    "a closure": "def make(word):\n    return lambda: word\nbuild_model = make('built')",
    "a class as function": "class Net:\n    def __str__(self): return 'built'\nbuild_model = Net",
    "super of a class": """
class Base:
    def word(self): return 'built'
class Net(Base):
    def word(self): return super().word()
def build_model(): return Net().word()
""",
    "an import": "import math\ndef build_model(): return 'built' if math.pi > 3 else ''",
    "functions of each other": "def build_model(n=1): return build_model(n - 1) if n else 'built'",
    "a local module": "import mine\nbuild_model = mine.build",
    "a module with the target's name": "import own\ndef build_model(): return own.build()",
}


@pytest.mark.parametrize("session", SESSIONS.values(), ids=SESSIONS.keys())
def test_what_a_session_defines_works_in_another_process(session: str, tmp_path: Path) -> None:
    for name in ("mine", "own"):
        (tmp_path / f"{name}.py").write_text("def build():\n    return 'built'\n")
    assert built_elsewhere(session, tmp_path) == "built"


def test_tracebacks_show_the_text_of_a_notebooks_cell(tmp_path: Path) -> None:
    session = """
        import linecache
        cell = "def build_model():\\n    raise ValueError('mine')\\n"
        linecache.cache["/tmp/ipykernel_7/1.py"] = (len(cell), None, cell.splitlines(True), "/tmp/ipykernel_7/1.py")
        exec(compile(cell, "/tmp/ipykernel_7/1.py", "exec"))
    """
    with pytest.raises(AssertionError, match=r'ipykernel_7/1.py", line 2, in build_model\n +raise ValueError'):
        built_elsewhere(session, tmp_path)


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "own.pickle").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        session_task.write(PARTS, "own", tmp_path)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "a b", "a\n"])
def test_names_that_are_no_files_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name="):
        session_task.write(PARTS, name, tmp_path)


def test_a_missing_function_is_named_with_the_lines_that_satisfy_it(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match=r"(?s)compute_loss=\.\.\..*def compute_loss\(model, batch\)"):
        session_task.write({name: PARTS[name] for name in ("build_model", "build_dataset")}, "own", tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"build_model": 3},
        {"build_model": lambda width: None},
        {"compute_loss": lambda batch: None},
        {"build_optimizer": lambda: None},
        {"collate_fn": lambda: None},
    ],
)
def test_parameters_are_checked_before_anything_starts(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ContractError, match=next(iter(wrong))):
        session_task.write(PARTS | wrong, "own", tmp_path)


def test_what_cannot_be_sent_is_named(tmp_path: Path) -> None:
    import threading

    lock = threading.Lock()
    with pytest.raises(UsageError, match=r"build_dataset cannot be sent .*lock"):
        session_task.write(PARTS | {"build_dataset": lambda: lock}, "own", tmp_path)
