"""YAML's rules: what is text, what is a number, and what is refused with its line."""

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.profiles import file
from autotune.profiles.file import Problem
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


def test_a_system_without_libyaml_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "PARSER", yaml.SafeLoader)
    pure = type("Pure", (yaml.SafeLoader,), {"yaml_implicit_resolvers": file.PlainLoader.yaml_implicit_resolvers})
    monkeypatch.setattr(file, "PlainLoader", pure)
    assert file.parse(TEXT, "x") == profile()
    with pytest.raises(Problem, match="nested deeper"):
        file.load("[" * 5000)
