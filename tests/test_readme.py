"""The README says what is true: its commands, its code, its tables and its links."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from autotune.cli import app
from autotune.errors import AutotuneError, NothingUsable, UsageError, UserCodeError
from autotune.knobs.knob import LEVELS
from autotune.trial.target import recognise

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text("utf-8")
COMMAND_LINE = (ROOT / "docs" / "command-line.md").read_text("utf-8")
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
        ROOT / "profiles" / "README.md",
        *ROOT.glob("docs/**/*.md"),
    ]
)
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
TWO_AT_ONCE = ("-n", "2", "--dist", "loadfile", "--ignore=tests/end_to_end")
COMMANDS: Any = typer.main.get_command(app)


def blocks(text: str, language: str) -> list[str]:
    """Contents of fenced blocks, indented ones too, without their indentation."""
    found = re.finditer(rf"(?ms)^( *)```{language}\n(.*?)^\1```", text)
    return [re.sub(rf"(?m)^{match[1]}", "", match[2]) for match in found]


def marked(name: str) -> str:
    """The command in the block after ``<!-- name -->``."""
    found = re.search(rf"<!-- {name} -->\n```sh\n(.*?)\n```", README)
    assert found is not None, f"README.md has no block after <!-- {name} -->"
    return found[1]


# -- the two commands --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "extra"), [("tune", "examples,mpi"), ("tests", "dev")])
def test_a_command_does_all_the_set_up(name: str, extra: str) -> None:
    command = marked(name)
    steps = [step.split() for step in command.split(" && ")]
    assert steps[0] == ["python3", "-m", "venv", ".venv"]
    assert steps[1][0] == ".venv/bin/pip"
    assert steps[1][-1] == f"'.[{extra}]'"
    assert steps[1][steps[1].index("-c") + 1] == "constraints.txt"
    assert {*extra.split(",")} <= {*importlib.metadata.metadata("torch-autotune").get_all("Provides-Extra", [])}
    for word in (word for step in steps[2:] for word in step[1:]):
        assert word in ("-m", "pytest", *TWO_AT_ONCE) or (ROOT / word).exists()


def test_ci_runs_the_readmes_test_command() -> None:
    printed = subprocess.run([ROOT / ".ci" / "run", "--print"], capture_output=True, text=True, check=True).stdout
    assert f"+ {marked('tests')}" in printed.splitlines()
    assert "pip install" not in (ROOT / ".ci" / "run").read_text("utf-8")
    for tool in ("ruff format --check", "ruff check", "mypy --strict"):
        assert tool in printed


def test_every_direct_dependency_is_constrained() -> None:
    wanted = {
        re.split(r"[ \[<>=!;]", requirement)[0].lower()
        for requirement in importlib.metadata.requires("torch-autotune") or ()
    } - {"torch-autotune"}
    ours, _, _others = (ROOT / "constraints.txt").read_text("utf-8").partition("# Not ours")
    lines = [line for line in ours.splitlines() if line and line[0] != "#"]
    assert {line.split("==")[0].lower() for line in lines} == wanted


# -- code --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", NAMES)
def test_python_blocks_compile(page: str) -> None:
    for number, block in enumerate(blocks((ROOT / page).read_text("utf-8"), "python")):
        compile(block, f"{page}, Python block {number}", "exec")


def task_file() -> str:
    """The example of the page on task files."""
    return next(
        b for b in blocks((ROOT / "docs" / "task-file.md").read_text("utf-8"), "python") if "def build_model" in b
    )


def test_the_task_file_satisfies_the_contract(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(task_file())
    assert recognise(path).name == "model"


@pytest.mark.torch
def test_the_training_loop_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.chdir(tmp_path)
    task: dict[str, object] = {}
    (changes,) = blocks(README, "diff")
    loop_with_us = "\n".join(line[1:] for line in changes.splitlines() if line[:1] in "+ ")
    exec(task_file(), task)
    torch.manual_seed(0)
    model = task["build_model"]()  # type: ignore[operator]
    before = [parameter.detach().clone() for parameter in model.parameters()]
    loop = {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "loader": torch.utils.data.DataLoader(task["build_dataset"](), batch_size=1024),  # type: ignore[operator]
        "criterion": torch.nn.functional.cross_entropy,
    }
    exec(loop_with_us, loop)
    loop["tuned"].close()  # type: ignore[attr-defined]
    assert all(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


# -- tables ------------------------------------------------------------------------------------------------------------


def rows(table: str) -> list[list[str]]:
    """Cells of a Markdown table without its head."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_levels_are_the_codes() -> None:
    table = README.split("## What may change")[1].split("## ")[0]
    assert [row[0] for row in rows(table)] == [f"`{level}`" for level in LEVELS]


def test_exit_codes_are_the_codes() -> None:
    text = COMMAND_LINE.split("Exit codes:")[1].split("\n\n")[0].replace("\n", " ")
    for error, words in ((UsageError, "usage"), (UserCodeError, "your code failed"), (NothingUsable, "nothing usable")):
        assert issubclass(error, AutotuneError)
        assert f"{error.exit_code} {words}" in text


def commands(text: str) -> Iterator[str]:
    """What stands in code spans and shell blocks after ``autotune``."""
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"(?ms)^ *```.*?^ *```", "", text))
    for code in (*spans, *(line for block in blocks(text, "sh") for line in block.splitlines())):
        yield from re.findall(r"(?:^|[ /])autotune ((?!=)[a-z].*)", code)


def complaint(line: str) -> str | None:
    """What is wrong with ``autotune LINE``, or None."""
    words, command = line.split(), COMMANDS
    while words and hasattr(command, "commands"):
        name = words.pop(0)
        if name not in command.commands:
            return f"autotune has no command {name}"
        command = command.commands[name]
    words = words[: words.index("train.py")] if "train.py" in words else words  # the rest is the script's
    known = {option for parameter in command.params for option in parameter.opts}
    unknown = [word for word in words if word.startswith("--") and word.split("=")[0] not in known]
    return f"{command.name} has no option {unknown[0]}" if unknown else None


@pytest.mark.parametrize("page", NAMES)
def test_commands_and_options_exist(page: str) -> None:
    found = list(commands((ROOT / page).read_text("utf-8")))
    assert [wrong for line in found if (wrong := complaint(line))] == []
    assert found or page != "README.md"


def test_every_command_is_documented() -> None:
    shown = COMMAND_LINE.split("Options of")[0]
    for name, command in COMMANDS.commands.items():
        inner = [f"{name} {sub}" for sub in command.commands] if hasattr(command, "commands") else [name]
        assert [line for line in inner if f"`autotune {line}" not in shown] == []


def test_every_option_of_tune_is_documented() -> None:
    shown = COMMAND_LINE.split("Options of `tune`:")[1].split("\n\n")[0]
    options = [option for parameter in COMMANDS.commands["tune"].params for option in parameter.opts]
    assert [option for option in options if option.startswith("--") and option not in shown] == []


def test_the_manifest_is_yaml_with_real_commands() -> None:
    (manifest,) = blocks((ROOT / "docs" / "guide.md").read_text("utf-8"), "yaml")
    pod = yaml.safe_load(manifest)["spec"]["template"]["spec"]
    lines = [" ".join(each["command"]) for each in (*pod["initContainers"], *pod["containers"])]
    assert [complaint(line.removeprefix("autotune ")) for line in lines] == [None, None]
    assert pod["containers"][0]["resources"] == pod["initContainers"][0]["resources"], "tuned as it trains"


def test_a_wrong_command_would_be_noticed() -> None:
    assert complaint("tune model.py --budget 5m") is None
    assert complaint("tuna model.py") is not None
    assert complaint("tune model.py --bugdet 5m") is not None
    assert list(commands("Say `.venv/bin/autotune tuna` or `autotune.load()`.")) == ["tuna"]


# -- links -------------------------------------------------------------------------------------------------------------


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", NAMES)
def test_links_lead_somewhere(page: str) -> None:
    text = re.sub(r"(?ms)^ *```.*?^ *```", "", (ROOT / page).read_text("utf-8"))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        path, _, place = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        headings = re.findall(r"(?m)^#+ (.*)$", target.read_text("utf-8")) if place else []
        assert not place or place in [anchor(heading) for heading in headings], link


@pytest.mark.parametrize("page", NAMES)
def test_named_files_exist(page: str) -> None:
    """Files of the project in code spans: ``autotune/core/knobs.py``, ``autotune/probes/``, ``benchmarks/x.py``."""
    text = (ROOT / page).read_text("utf-8")
    tops = "autotune|probes|tests|examples|docs|benchmarks|core|trial|runtime"
    for path in re.findall(rf"`(?:python )?((?:{tops})/[\w/.\-]+\.py)\b", text):
        assert (ROOT / path).exists() or (ROOT / "autotune" / path).exists(), path


@pytest.mark.skipif(sys.platform == "win32", reason="no executable bits")
def test_ci_run_can_be_run() -> None:
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
