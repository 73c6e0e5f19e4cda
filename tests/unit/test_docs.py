"""The documents are true: links lead somewhere, commands and options exist, limits hold, examples are real."""

import ast
import html
import re
import runpy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
import yaml

import autotune
from autotune.cli import app
from autotune.decoding import InvalidValue, as_data, build
from autotune.errors import Interrupted, NothingUsable, UsageError, UserCodeError
from autotune.knobs.settings import KNOBS, Settings
from autotune.knobs.task_facts import Fingerprint
from autotune.profiles import file
from autotune.profiles.format import Advice, Profile, Written
from autotune.stats.whole_run import WholeRun
from autotune.trial.target import NEW_TASK, OPTIONAL, REQUIRED, recognise
from tests.doubles.proven_profile import MACHINE, profile

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
OUTSIDE = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "profiles/README.md")]
PAGES = {str(page.relative_to(ROOT)): page.read_text("utf-8") for page in [*OUTSIDE, *sorted(DOCS.glob("**/*.md"))]}
DECISIONS = [name for name in PAGES if "/decisions/0" in name]
MOST_WORDS, MOST_WORDS_OF_README, MOST_WORDS_OF_A_DECISION, MOST_WORDS_OF_REFERENCE = 15_000, 900, 220, 1_200
UNCOUNTED = ("CHANGELOG.md", "profiles/README.md", "docs/api.md")
OLD_WORDS = r"(?i)\b(zygotes?|scouts?|witness(es)?|frontiers?|contenders?|feeders?)\b"
COMMAND_LINE, FORMAT = PAGES["docs/command-line.md"], PAGES["docs/profile-format.md"]
COMMANDS: Any = typer.main.get_command(app)


def blocks(text: str, language: str) -> list[str]:
    """Return the contents of fenced blocks, indented ones too, without their indentation."""
    found = re.finditer(rf"(?ms)^( *)```{language}\n(.*?)^\1```", text)
    return [re.sub(rf"(?m)^{match[1]}", "", match[2]) for match in found]


def prose(text: str) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(r"(?ms)^ *```.*?^ *```", "", text)


# -- limits ------------------------------------------------------------------------------------------------------------


def test_the_documents_are_short() -> None:
    words = {name: len(text.split()) for name, text in PAGES.items() if name not in UNCOUNTED}
    assert sum(words.values()) <= MOST_WORDS
    assert len(PAGES["docs/api.md"].split()) <= MOST_WORDS_OF_REFERENCE
    assert words["README.md"] <= MOST_WORDS_OF_README
    assert [name for name in DECISIONS if words[name] > MOST_WORDS_OF_A_DECISION] == []


@pytest.mark.parametrize("page", [name for name in PAGES if name != "CHANGELOG.md"])
def test_pages_use_the_fields_words(page: str) -> None:
    assert [found[0] for found in re.finditer(OLD_WORDS, prose(PAGES[page]))] == []


@pytest.mark.parametrize("page", [name for name in PAGES if name != "CHANGELOG.md"])
def test_no_two_chapters_have_one_name(page: str) -> None:
    headings = re.findall(r"(?m)^#+ (.*)$", prose(PAGES[page]))
    assert sorted(set(headings)) == sorted(headings)


# -- links and files ---------------------------------------------------------------------------------------------------


def anchor(heading: str) -> str:
    """Return the link target of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(PAGES[page])):
        if "://" in link:
            continue
        path, _, place = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        headings = re.findall(r"(?m)^#+ (.*)$", target.read_text("utf-8")) if place else []
        assert not place or place in [anchor(heading) for heading in headings], link


@pytest.mark.parametrize("page", [name for name in PAGES if name != "CHANGELOG.md"])
def test_named_files_exist(page: str) -> None:
    tops = "autotune|probes|tests|examples|docs|benchmarks"
    for path in re.findall(rf"`(?:python )?((?:{tops})/[\w/.\-]*\w/?)`", PAGES[page]):
        assert (ROOT / path).exists(), path


def test_every_decision_is_in_the_list_and_has_its_figure() -> None:
    listed = PAGES["docs/decisions/README.md"]
    for name in DECISIONS:
        assert f"]({Path(name).name})" in listed
        assert [part for part in ("Decision", "Why", "Figure") if f"**{part}.**" not in PAGES[name]] == []
        assert re.search(r"docs/measure\.py \w+|benchmarks[./]\w+|measured once|by hand", PAGES[name]), name


def test_figures_of_decisions_can_be_measured_again() -> None:
    named = {figure for name in DECISIONS for figure in re.findall(r"docs/measure\.py\s+(\w+)", PAGES[name])}
    tree = ast.parse((DOCS / "measure.py").read_text("utf-8"))
    (table,) = [node.value for node in tree.body if isinstance(node, ast.Assign) and "FIGURES" in ast.unparse(node)]
    assert isinstance(table, ast.Dict)
    assert named == {key.value for key in table.keys if isinstance(key, ast.Constant)}
    for module in {found for name in PAGES for found in re.findall(r"python\s+-m\s+benchmarks\.(\w+)", PAGES[name])}:
        assert list((ROOT / "benchmarks").glob(f"{module}*")), module


# -- commands ----------------------------------------------------------------------------------------------------------


def commands(text: str) -> Iterator[str]:
    """Yield what stands in code spans and shell blocks after ``autotune``."""
    spans = re.findall(r"`([^`\n]+)`", prose(text))
    for code in (*spans, *(line for block in blocks(text, "sh") for line in block.splitlines())):
        yield from re.findall(r"(?:^|[ /])autotune ((?!=)[a-z].*)", code)


def complaint(line: str) -> str | None:
    """Return what is wrong with ``autotune LINE``, or None."""
    words, command = line.split(), COMMANDS
    while words and hasattr(command, "commands"):
        name = words.pop(0)
        if name not in command.commands:
            return f"autotune has no command {name}"
        command = command.commands[name]
    ends = [words.index(word) for word in ("train.py", "torchrun", "accelerate", "mpiexec") if word in words]
    words = words[: min(ends)] if ends else words  # the rest is the script's, or its launcher's
    known = {option for parameter in command.params for option in parameter.opts}
    unknown = [word for word in words if word.startswith("--") and word.split("=")[0] not in known]
    return f"{command.name} has no option {unknown[0]}" if unknown else None


def options(*names: str) -> set[str]:
    """Return the options of some commands; of all of them if none is named."""
    found: list[Any] = [COMMANDS]
    for command in found:
        found += getattr(command, "commands", {}).values()
    chosen = [command for command in found if not names or command.name in names]
    return {option for command in chosen for parameter in command.params for option in parameter.opts}


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_options_exist(page: str) -> None:
    assert [wrong for line in commands(PAGES[page]) if (wrong := complaint(line))] == []


def test_every_command_and_option_is_documented() -> None:
    table, _, lists = COMMAND_LINE.partition("Options of")
    for name, command in COMMANDS.commands.items():
        inner = [f"{name} {sub}" for sub in command.commands] if hasattr(command, "commands") else [name]
        assert [line for line in inner if f"`autotune {line}" not in table] == []
    both = {option for option in options("tune", "run") if option.startswith("--")}
    assert [option for option in both if f"`{option}" not in lists] == []
    unknown = set(re.findall(r"`(--[a-z0-9-]+)", COMMAND_LINE)) - options()
    assert unknown == set()


def test_exit_codes_are_the_codes() -> None:
    text = COMMAND_LINE.split("Exit codes:")[1].split("\n\n")[0].replace("\n", " ")
    for error, code, words in (
        (UsageError, 2, "usage"),
        (UserCodeError, 3, "your code failed"),
        (NothingUsable, 4, "nothing usable"),
        (Interrupted, 130, "interrupted"),
    ):
        assert error.exit_code == code
        assert f"{code} {words}" in text


def test_the_manifest_is_yaml_with_real_commands() -> None:
    (manifest,) = blocks(PAGES["docs/guide.md"], "yaml")
    pod = yaml.safe_load(manifest)["spec"]["template"]["spec"]
    lines = [" ".join(each["command"]) for each in (*pod["initContainers"], *pod["containers"])]
    assert [complaint(line.removeprefix("autotune ")) for line in lines] == [None, None]
    assert pod["containers"][0]["resources"] == pod["initContainers"][0]["resources"], "tuned as it trains"


def source_texts() -> str:
    """Return every text in the code, with ``...`` in place of what varies."""
    texts = []
    for path in ROOT.glob("autotune/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                texts.append(
                    "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values)
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return "\n".join(texts)


def test_messages_are_the_codes() -> None:
    table = PAGES["docs/troubleshooting.md"].split("## Messages")[1].split("## ")[0]
    cells = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| `")]
    parts = [part.strip() for cell in cells for text in re.findall(r"`([^`]+)`", cell) for part in text.split("...")]
    known = source_texts()
    assert [part for part in parts if part not in known] == []


# -- examples ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks_compile(page: str) -> None:
    for number, block in enumerate(blocks(PAGES[page], "python")):
        compile(block, f"{page}, Python block {number}", "exec")


def test_the_task_file_page_names_the_whole_contract(tmp_path: Path) -> None:
    page = PAGES["docs/task-file.md"]
    for name in (*REQUIRED, *OPTIONAL):
        assert f"`{name}" in page
        assert name in NEW_TASK
    path = tmp_path / "model.py"
    path.write_text(next(block for block in blocks(page, "python") if "def build_model" in block))
    assert recognise(path).name == "model"


def whole_profile() -> dict[str, Any]:
    """Return the data of a profile that has every key."""
    made = profile(Settings(), machine=replace(MACHINE, gpus=("h200",), gpu_gib=(141,), gpu_links=("nvlink",)))
    compared = Fingerprint(("0" * 16,), ("1" * 16,), ("2" * 16,))
    target = replace(made.target, script="steps", ranked=True, project="own", compared=compared)
    evidence = replace(made.evidence, load="others took 1.0 of 2 CPUs", busy=True, noise_scale=2.0)
    evidence = replace(evidence, run=WholeRun(1.0, 0.1, 0.0, 100))
    evidence = replace(evidence, advice=(Advice("threads", 1, "OMP_NUM_THREADS=8", made.level().speedup),))
    more = {"verdict": "gain", "memory": 1, "gpu_memory": 1, "start_seconds": 1.0}
    levels = {name: replace(result, **more) for name, result in made.levels.items()}
    written = Written("0.1.0", "2026-11-22")
    data: dict[str, Any] = as_data(replace(made, target=target, levels=levels, evidence=evidence, written=written))
    return data


def keys(data: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield the dotted names of every key, down to settings, levels and the parts of an interval."""
    for name, value in data.items():
        if isinstance(value, Mapping) and name != "software":
            yield from keys(value, f"{above}{name}.")
        else:
            yield f"{above}{name}"


def documented(key: str) -> bool:
    """Return whether the table names ``key`` by itself, as a part of a record, or as ``.part`` in its record's row."""
    key = re.sub(r"^levels\.\w+\.", "levels.*.", key)
    key = re.sub(r"\.settings\..*", ".settings", key)
    record, _, last = key.rpartition(".")
    lines = [line for line in FORMAT.splitlines() if line.startswith("| `")]
    if any(f"`{key}`" in line.split(" | ")[0] for line in lines):
        return True
    return any(f"`{record}." in line and f"`.{last}`" in line for line in lines) or any(
        line.startswith(f"| `{record}` ") and f"`{last}`" in line for line in lines
    )


def test_the_formats_table_is_the_format() -> None:
    assert [key for key in keys(whole_profile()) if not documented(key)] == []
    assert not documented("machine.hostname")
    for first, others in re.findall(r"(?m)^\| `([a-z_.*]+)`((?:, `\.[a-z_]+`)*)", FORMAT):
        record = first.rpartition(".")[0]
        for name in (first, *(record + other for other in re.findall(r"`(\.[a-z_]+)`", others))):
            place: Any = whole_profile()
            for part in name.split("."):
                place = next(iter(place.values())) if part == "*" else place[part]


def merged(data: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``data`` with the values of ``part``."""
    return {**data, **{k: merged(data[k], v) if isinstance(v, Mapping) else v for k, v in part.items()}}


def test_the_formats_example_is_part_of_a_profile() -> None:
    (example,) = blocks(FORMAT, "yaml")
    part = file.load(example)
    assert set(keys(part)) <= set(keys(whole_profile()))
    assert build(Profile, merged(whole_profile(), part)).recommended == part["recommended"]
    with pytest.raises(InvalidValue, match="recommended"):
        build(Profile, merged(whole_profile(), {"recommended": "fast"}))


def test_each_knob_has_its_row_in_the_order_of_the_table() -> None:
    rows = re.findall(r"(?m)^\| `\w+` .*$", PAGES["docs/knobs.md"])
    for knob, row in zip(KNOBS, rows, strict=True):
        name, _what, level, applied, _tried = row.strip("| ").split(" | ")
        assert (name, level, applied) == (f"`{knob.name}`", knob.level.name, knob.applied)


def test_the_reference_is_that_of_the_docstrings() -> None:
    made = SimpleNamespace(**runpy.run_path(str(DOCS / "api.py")))
    assert made.page() == PAGES["docs/api.md"], "run python docs/api.py"
    assert {*made.EXPORTED, "__version__"} == set(autotune.__all__)


def test_what_is_made_from_a_run_is_up_to_date() -> None:
    made = SimpleNamespace(**runpy.run_path(str(DOCS / "render.py")))
    text = made.TEXT.read_text("utf-8")
    picture = made.PICTURE.read_text("utf-8")
    drawn = re.sub(r"\s", "", html.unescape("".join(re.findall(r"(?s)<text[^>]*>(.*?)</text>", picture))))
    assert re.sub(r"\s", "", text) in drawn, "run python docs/render.py"
    assert made.filled(PAGES["README.md"], text) == PAGES["README.md"], "run python docs/render.py"
    assert made.svg(text) == made.svg(text)
    assert "http" not in re.sub(r'xmlns="[^"]*"|<!--.*?-->', "", made.svg(text))
    assert made.final_text("[1 s] loading\nautotune  a on b\nApply\n\n") == "autotune  a on b\nApply\n"
