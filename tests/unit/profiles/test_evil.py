"""Files written to harm: each is refused with its place, and nothing in them runs."""

import os
import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import ProfileError
from autotune.profiles import file
from autotune.profiles.places import default_path
from autotune.profiles.registry import Registry
from tests.doubles.hostile import TEXT, canary, corpus
from tests.doubles.profiles import MACHINE, find, here

WITHOUT_LINE = re.compile(
    r"is empty|is not a profile|is larger than|has no key 'schema'|schema: |is not plain YAML"
    r"|[a-z.]+: is missing"
)


@pytest.mark.parametrize("name", corpus(Path("x")))
def test_each_is_refused_quickly_with_its_place_and_runs_nothing(name: str, tmp_path: Path) -> None:
    bird = tmp_path / "canary"
    text = corpus(bird)[name]
    assert text != TEXT
    path = default_path(MACHINE.key, "resnet", tmp_path)
    path.parent.mkdir()
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    before, start = dict(os.environ), time.process_time()
    with pytest.raises(ProfileError) as caught, canary() as events:
        file.read(path)
    assert time.process_time() - start < 2.0
    said = str(caught.value)
    assert said.replace("\n", "").isprintable()
    first = said.splitlines()[0].removeprefix(f"{path}: ")
    assert re.match(r"line \d+: ", first) or WITHOUT_LINE.match(first), first
    assert first.isascii(), first
    assert find(here(), [tmp_path]) is None
    assert not bird.exists()
    assert events == []
    assert dict(os.environ) == before


def test_the_canary_sings() -> None:
    with canary() as events:
        os.system("true")
    assert "os.system" in events


VALUES = st.one_of(
    st.sampled_from(
        [".nan", "1e999", "!!python/name:os.system", "&a x", "*a", "[[[[]]]]", "{}", "null", "no", "9" * 200]
    ),
    st.text(max_size=30),
    st.integers().map(str),
    st.floats().map(str),
)
LINES = TEXT.splitlines()


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """The good profile with a few lines changed, doubled, moved or dropped, or with bytes of anything inside."""
    lines = list(LINES)
    for _ in range(draw(st.integers(1, 4))):
        index = draw(st.integers(0, len(lines) - 1))
        kind = draw(st.sampled_from(["value", "double", "drop", "move", "insert", "indent"]))
        if kind == "value":
            lines[index] = lines[index].partition(":")[0] + ": " + draw(VALUES)
        elif kind == "double":
            lines.insert(index, lines[index])
        elif kind == "drop":
            del lines[index]
        elif kind == "move":
            lines.insert(draw(st.integers(0, len(lines) - 1)), lines.pop(index))
        elif kind == "insert":
            lines.insert(index, draw(st.text(max_size=60)))
        else:
            lines[index] = " " * draw(st.integers(0, 8)) + lines[index].strip()
    return "\n".join(lines)


@given(mutated() | st.text(max_size=200))
@settings(max_examples=100, deadline=None)
def test_whatever_is_changed_is_a_profile_or_refused_and_runs_nothing(text: str) -> None:
    with canary() as events:
        try:
            file.parse(text, "p.yaml")
        except ProfileError as error:
            said = str(error)
        else:
            said = "p.yaml: "
    assert said.startswith("p.yaml: ")
    assert [event for event in events if event != "import"] == []


def test_a_profile_cut_short_is_refused_or_has_the_same_settings() -> None:
    whole = file.parse(TEXT, "p.yaml")
    for size in sorted({*range(0, len(TEXT), 29), *range(len(TEXT) - 60, len(TEXT))}):
        try:
            found = file.parse(TEXT[:size], "p.yaml")
        except ProfileError:
            continue
        assert (found.levels, found.baseline, found.recommended) == (whole.levels, whole.baseline, whole.recommended)


def test_names_of_files_of_others_are_never_shown(tmp_path: Path) -> None:
    for name in ("\x1b]0;owned\x07.yaml", "a b.yaml", "\u202e.yaml", "-.yaml", ".hidden.yaml"):
        (tmp_path / MACHINE.key).mkdir(exist_ok=True)
        (tmp_path / MACHINE.key / name).write_text("x")
    (tmp_path / "\x1b[2J").mkdir()
    (tmp_path / "\x1b[2J" / "resnet.yaml").write_text("x")
    assert Registry(tmp_path).names() == [f"{MACHINE.key}/-.yaml"]
