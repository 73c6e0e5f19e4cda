from __future__ import annotations

import os
from pathlib import Path

import pytest

from autotune.store.observed import MOST, SUFFIX, Observed, append, read, summary

ONE = Observed("2026-11-22", "safe", 200, 0.97)


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    return tmp_path / "train.yaml"


def test_what_is_added_is_read_back_in_its_order(profile: Path) -> None:
    others = [Observed("2026-11-23", "max", 400, 1.02), ONE]
    for each in (ONE, *others):
        append(profile, each)
    assert read(profile) == (ONE, *others)


def test_the_latest_are_kept(profile: Path) -> None:
    profile.with_suffix(SUFFIX).write_text('{"date": "d", "level": "safe", "steps": 1, "share": 0.5}\n' * (MOST + 5))
    append(profile, ONE)
    assert len(read(profile)) == MOST
    assert read(profile)[-1] == ONE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        '{"share": 1}',
        '{"date": "d", "level": "safe", "steps": "x", "share": 1}',
        "[" * 5000,
        "\0",
        '{"date": "d", "level": "safe", "steps": 1, "share": 1%s}' % ("0" * 400),
        '{"date": "d", "level": "safe", "steps": true, "share": 1}',
        '{"date": ["d"], "level": "safe", "steps": 1, "share": 1}',
    ],
)
def test_what_is_none_of_ours_is_left_out(profile: Path, text: str) -> None:
    profile.with_suffix(SUFFIX).write_text(text)
    assert read(profile) == ()


def test_a_pipe_in_its_place_holds_nobody_up(profile: Path) -> None:
    os.mkfifo(profile.with_suffix(SUFFIX))
    assert read(profile) == ()
    append(profile, ONE)
    assert read(profile) == (ONE,)


def test_nothing_is_there_without_a_file(profile: Path) -> None:
    assert read(profile) == ()


def test_summaries_take_the_median_of_a_level() -> None:
    found = (ONE, Observed("d", "safe", 200, 0.5), Observed("d", "safe", 200, 0.9), Observed("d", "max", 200, 2.0))
    assert summary(found, "safe") == "3 trainings reached 0.90 of the promised rate"
    assert summary(found, "max") == "1 training reached 2.00 of the promised rate"
    assert summary(found, "amp") == ""
