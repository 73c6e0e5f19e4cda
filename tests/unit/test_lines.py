from __future__ import annotations

import pytest

from autotune.lines import cut, first_line


@pytest.mark.parametrize(
    ("text", "width", "line"),
    [
        ("", 9, ""),
        ("\n\n", 9, ""),
        ("\n one\ntwo", 9, "one"),
        ("123456789", 9, "123456789"),
        ("1234567890", 9, "123456..."),
    ],
)
def test_a_text_is_cut_to_its_first_line(text: str, width: int, line: str) -> None:
    assert first_line(text, width) == line


def test_columns_stay_and_no_blank_is_left_before_the_dots() -> None:
    assert cut("a   b", 9) == "a   b"
    assert cut("a     b23", 8) == "a..."
