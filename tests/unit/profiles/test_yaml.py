"""YAML's rules: what is text, what is a number, and what is refused with its line."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.profiles import file
from autotune.profiles.file import MAX_DEPTH, MAX_ITEMS, MAX_TEXT, Problem
from tests.doubles.hostile import TEXT
from tests.doubles.profiles import profile

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**60), 10**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20).filter(str.isprintable),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8).filter(str.isprintable), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from("abc"), plain))
@settings(max_examples=60, deadline=None)
def test_plain_data_comes_back_and_other_readers_see_the_same(data: dict[str, Any]) -> None:
    text = file.dump_plain(data)
    assert file.load(text) == yaml.safe_load(text) == data


@pytest.mark.parametrize(
    ("written", "value"),
    [
        *((word, word) for word in ("no", "Yes", "on", "1:30", "010", "0x8", "1_0", ".nan", ".inf", "+8", "2020-1-1")),
        *(("8", 8), ("-0", 0), ("1.", 1.0), ("1e5", 1e5), ("-0e-3", -0.0), ("true", True), ("~", None), ("", None)),
        *(("'8'", "8"), ('"true"', "true"), ("''", ""), ("True", "True"), ("NULL", "NULL")),
    ],
)
def test_words_keep_their_spelling(written: str, value: Any) -> None:
    found = file.load(f"a: {written}\n")["a"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb:\n  c: *x\n", "line 3: anchors and aliases are not allowed"),
        ("a: &x 1\n", "line 1: anchors and aliases are not allowed"),
        ("&x a: 1\n", "line 1: anchors and aliases are not allowed"),
        ("a: !!int '8'\n", "line 1: tags are not allowed"),
        ("a:\n- !x {}\n", "line 2: tags are not allowed"),
        ("a: 1\na: 2\n", "line 2: the key 'a' is there twice"),
        ("1: x\n", "line 1: a key is not plain text"),
        ("? [a]\n: x\n", "line 1: a key is not plain text"),
        ("a: 1\n---\na: 1\n", "line 2: a second document is not allowed"),
        ("a: " + "[" * MAX_DEPTH + "]" * MAX_DEPTH, f"nested deeper than {MAX_DEPTH} levels"),
        (f"a: {'x' * (MAX_TEXT + 1)}", f"is longer than {MAX_TEXT} characters"),
        (f"a: [{'1, ' * (MAX_ITEMS + 1)}]", f"line 1: this group has more than {MAX_ITEMS} entries"),
        ("a: |\n  b\n  c\n", "line 1: holds control or other unprintable characters"),
        ('a: "\\u202e"\n', "line 1: holds control or other unprintable characters"),
        ('"\\u202e": 1\n', "line 1: holds control or other unprintable characters"),
        ("a: [1\n", "line 2: "),
        ("a: \x1b\n", "is not plain YAML ("),
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    with pytest.raises(Problem) as caught:
        file.load(text)
    assert words in str(caught.value)
    assert str(caught.value).isascii()


def test_a_system_without_libyaml_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "PARSER", yaml.SafeLoader)
    pure = type("Pure", (yaml.SafeLoader,), {"yaml_implicit_resolvers": file.PlainLoader.yaml_implicit_resolvers})
    monkeypatch.setattr(file, "PlainLoader", pure)
    assert file.parse(TEXT, "x") == profile()
    with pytest.raises(Problem, match="nested deeper"):
        file.load("[" * 5000)
