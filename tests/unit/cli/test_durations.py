"""Durations as people type them."""

from __future__ import annotations

import pytest

from autotune.cli_parsing import optional_bytes
from autotune.durations import seconds
from autotune.errors import UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("90", 90), ("90s", 90), ("5m", 300), ("10h", 36000), ("1d", 86400), ("1.5m", 90), ("5 minutes", 300)),
        *(("1h30m", 5400), ("1h 30m", 5400), ("2H", 7200), ("1 day", 86400)),
    ],
)
def test_durations_are_read_as_people_write_them(text: str, expected: float) -> None:
    assert seconds(text, "--budget") == expected


WRONG = ("", "s", "m5", "5 lightyears", "1ms", "5 ms", "1h30", "5m or so", "5..m", "-5s", "0", "0m", "nan", "1e400h")


@pytest.mark.parametrize("text", WRONG)
def test_others_are_refused_with_the_option_and_the_text(text: str) -> None:
    with pytest.raises(UsageError) as error:
        seconds(text, "--train-time")
    assert f"--train-time {text!r}" in str(error.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("8g", 8 * 2**30), ("8GiB", 8 * 2**30), ("1.5 GB", 3 * 2**29), ("512m", 2**29), ("1024", 1024), ("2T", 2**41)],
)
def test_sizes_are_read_as_docker_reads_them(text: str, expected: int) -> None:
    assert optional_bytes(text, "--max-memory") == expected


@pytest.mark.parametrize("text", ["", "8x", "g", "-8g", "0", "1e9", "8 g b"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--max-memory .*8g or 512m"):
        optional_bytes(text, "--max-memory")
