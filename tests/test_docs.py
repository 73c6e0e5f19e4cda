"""The documents' examples are real: the profile validates, the picture shows the text, the figures can be measured."""

from __future__ import annotations

import html
import importlib.util
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from autotune.core.identity import Identity

from autotune.commands.init import TASK
from autotune.knobs.settings import Settings
from autotune.profiles import strict_yaml
from autotune.profiles.format import Ceiling, Written, from_data
from autotune.profiles.records import Refused
from autotune.trial.target import OPTIONAL, REQUIRED
from benchmarks.simulation.profiles import MACHINE, profile

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


def whole_profile() -> dict[str, Any]:
    """The data of a profile that has every key."""
    made = profile(Settings(), machine=replace(MACHINE, gpus=("h200",), gpu_gib=(141,), gpu_links=("nvlink",)))
    target = replace(made.target, nnodes=2, script="steps", skip=1, identity=Identity("0" * 16, "SGD", ("number",)))
    evidence = replace(made.evidence, ceiling=Ceiling(1.0, 1.0, 1.0))
    return replace(made, target=target, evidence=evidence, written=Written("0.1.0", "2026-11-22")).as_dict()


def keys(data: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Dotted names of every key, down to settings, levels and the parts of an interval."""
    for name, value in data.items():
        if isinstance(value, Mapping) and name != "software":
            yield from keys(value, f"{above}{name}.")
        else:
            yield f"{above}{name}"


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
    assert [key for key in keys(whole_profile()) if not documented(key)] == []
    assert not documented("machine.hostname")


def test_every_explained_key_exists() -> None:
    for first, others in re.findall(r"(?m)^\| `([a-z_.*]+)`((?:, `\.[a-z_]+`)*)", FORMAT):
        record = first.rpartition(".")[0]
        for name in (first, *(record + other for other in re.findall(r"`(\.[a-z_]+)`", others))):
            place: Any = whole_profile()
            for part in name.split("."):
                place = next(iter(place.values())) if part == "*" else place[part]


def merged(data: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """``data`` with the values of ``part``."""
    return {**data, **{k: merged(data[k], v) if isinstance(v, Mapping) else v for k, v in part.items()}}


def test_the_example_is_part_of_a_profile() -> None:
    (example,) = re.findall(r"(?s)```yaml\n(.*?)```", FORMAT)
    part, _lines = strict_yaml.load(example)
    assert set(keys(part)) <= set(keys(whole_profile()))
    assert from_data(merged(whole_profile(), part)).recommended == part["recommended"]
    with pytest.raises(Refused, match="recommended"):
        from_data(merged(whole_profile(), {"recommended": "fast"}))


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
