"""Durations, sizes, yes and no as people type them."""

from collections.abc import Callable

import pytest

from autotune.cli_parsing import optional_bytes
from autotune.durations import seconds
from autotune.environment import disabled
from autotune.errors import UsageError

DURATIONS = {"90": 90, "90s": 90, "5m": 300, "10h": 36000, "1d": 86400, "1.5m": 90, "5 minutes": 300}
DURATIONS |= {"1h30m": 5400, "1h 30m": 5400, "2H": 7200, "1 day": 86400}
SIZES = {"8g": 8 * 2**30, "8GiB": 8 * 2**30, "1.5 GB": 3 * 2**29, "512m": 2**29, "2097152": 2**21, "2T": 2**41}


def test_they_are_read_as_people_and_docker_write_them() -> None:
    assert {text: seconds(text, "--budget") for text in DURATIONS} == DURATIONS
    assert {text: optional_bytes(text, "--max-memory") for text in SIZES} == SIZES


NO_DURATIONS = ("", "s", "m5", "5 lightyears", "1ms", "5 ms", "1h30", "5m or so", "5..m", "-5s", "0", "0m", "nan")
NO_SIZES = ("", "8x", "g", "-8g", "0", "1e9", "8 g b")


@pytest.mark.parametrize(
    ("read", "text"),
    [*((seconds, each) for each in (*NO_DURATIONS, "1e400h")), *((optional_bytes, each) for each in NO_SIZES)],
)
def test_others_are_refused_with_the_option_and_the_text(read: Callable[[str, str], object], text: str) -> None:
    with pytest.raises(UsageError) as error:
        read(text, "--option")
    assert f"--option {text!r}" in str(error.value)
    assert "8g or 512m" in str(error.value) or read is seconds


NO = ["", "0", "false", "False", "no", "NO", "off", " off "]


@pytest.mark.parametrize("written", [*NO, "1", "true", "Yes", "on", "2"])
def test_yes_and_no_as_people_write_them(written: str) -> None:
    assert disabled({"AUTOTUNE_DISABLE": written}) is (written not in NO)
