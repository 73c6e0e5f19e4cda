"""The documents' examples are real: the profile validates, the picture shows the text, the figures can be measured."""

from __future__ import annotations

import html
import importlib.util
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from autotune.commands.init import TASK
from autotune.core.errors import ProfileError
from autotune.store import profiles, yaml_text
from autotune.store.schema import ProfileRecord
from autotune.trial.task_file import OPTIONAL, REQUIRED

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
FORMAT = (DOCS / "profile-format.md").read_text("utf-8")


def script(name: str) -> ModuleType:
    """A script of ``docs``, as a module."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def example() -> str:
    found = re.search(r"(?s)## An example\n.*?```yaml\n(.*?)```", FORMAT)
    assert found is not None
    return found[1]


def test_the_example_is_a_profile_as_it_would_be_written(example: str) -> None:
    profile = profiles.parse(example, "docs/profile-format.md")
    assert profiles.dump(profile, "jpeg_folder.yaml") == example


def test_a_wrong_example_would_be_noticed(example: str) -> None:
    with pytest.raises(ProfileError, match="recommended"):
        profiles.parse(example.replace("recommended: amp", "recommended: fast"), "x")


def keys(record: type[BaseModel], above: str = "") -> Iterator[str]:
    """Dotted names of every key, down to settings, levels and the parts of an interval."""
    for name, info in record.model_fields.items():
        full = f"{above}{info.alias or name}"
        inner = next(iter(records(info.annotation)), None)
        if inner is None:
            yield full
        else:
            yield from keys(inner, f"{full}.")


def records(kind: Any) -> Iterator[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    elif get_origin(kind) in (Union, UnionType, Annotated):
        for part in get_args(kind):
            yield from records(part)


def documented(key: str) -> bool:
    """True where the table names ``key`` by itself, as a part of a record, or as ``.part`` in its record's row."""
    key = re.sub(r"^levels\.\w+\.", "levels.*.", key)
    key = re.sub(r"\.settings\..*", ".settings", key)
    record, _, last = key.rpartition(".")
    lines = [line for line in FORMAT.split("## Where")[0].splitlines() if line.startswith("| `")]
    if any(f"`{key}`" in line.split(" | ")[0] for line in lines):
        return True
    return any(f"`{record}." in line and f"`.{last}`" in line for line in lines) or any(
        line.startswith(f"| `{record}` ") and f"`{last}`" in line for line in lines
    )


def test_every_key_is_explained() -> None:
    assert [key for key in keys(ProfileRecord) if not documented(key)] == []
    assert not documented("machine.hostname")


def test_every_explained_key_exists(example: str) -> None:
    data: Mapping[str, Any] = yaml_text.load(example)
    for name in re.findall(r"(?m)^\| `([a-z_.*]+)`", FORMAT):
        place: Any = data
        for part in name.split("."):
            place = next(iter(place.values())) if part == "*" else place[part]


def test_picture_and_readme_show_the_saved_text() -> None:
    render = script("render")
    text = render.TEXT.read_text("utf-8")
    nodes = re.findall(r"(?s)<text[^>]*>(.*?)</text>", render.PICTURE.read_text("utf-8"))
    drawn = re.sub(r"\s", "", html.unescape("".join(nodes)))
    assert re.sub(r"\s", "", text) in drawn, "run python docs/render.py"
    readme = render.README.read_text("utf-8")
    assert render.filled(readme, text) == readme, "run python docs/render.py"
    page = render.KNOBS_PAGE.read_text("utf-8")
    assert render.with_knobs(page) == page, "run python docs/render.py"


def test_the_picture_is_drawn_alike_each_time() -> None:
    render = script("render")
    text = render.TEXT.read_text("utf-8")
    assert render.svg(text) == render.svg(text)
    assert "http" not in re.sub(r'xmlns="[^"]*"|<!--.*?-->', "", render.svg(text))


def test_a_runs_output_is_cut_to_its_answer() -> None:
    assert script("render").final_text("[1 s] loading\nautotune  a on b\nApply\n\n") == "autotune  a on b\nApply\n"


def test_figures_of_decisions_can_be_measured_again() -> None:
    measure = script("measure")
    named = [re.findall(r"docs/measure\.py\s+(\w+)", page.read_text("utf-8")) for page in DOCS.glob("decisions/0*.md")]
    assert {name for names in named for name in names} == set(measure.FIGURES)
    for page in DOCS.glob("decisions/0*.md"):
        assert re.search(r"docs/measure\.py \w+|python -m benchmarks\.\w+", page.read_text("utf-8")), page.name


def test_the_task_file_page_names_the_whole_contract() -> None:
    page = (DOCS / "task-file.md").read_text("utf-8")
    for name in (*REQUIRED, *OPTIONAL):
        assert f"`{name}" in page
        assert name in TASK


def test_every_decision_is_listed() -> None:
    listed = (DOCS / "decisions" / "README.md").read_text("utf-8")
    for page in DOCS.glob("decisions/0*.md"):
        assert f"]({page.name})" in listed
        text = page.read_text("utf-8")
        assert [part for part in ("Context", "Decision", "Figure", "Consequence") if f"**{part}.**" not in text] == []
