"""Each knob has a reason for each way it can move."""

from __future__ import annotations

import pytest

from autotune.knobs.knob import LESS, MORE, Knob
from autotune.knobs.settings import Settings
from autotune.knobs.table import BY_NAME, KNOBS
from autotune.report.levels import changed


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: knob.name)
def test_every_move_has_a_short_reason(knob: Knob) -> None:
    moves = (MORE, LESS) if knob.ordinal else knob.kind.values
    assert all(0 < len(knob.why[value]) <= 40 for value in moves)
    assert set(knob.why) - {None} == set(moves)


@pytest.mark.parametrize(
    ("knob", "before", "after", "phrase"),
    [
        ("num_workers", 0, 4, "batches are prepared during training"),
        ("num_workers", 4, 0, "workers took time from training"),
        ("prefetch_factor", 4, 2, "less memory for waiting batches"),
        ("prefetch_factor", 2, None, "no workers, nothing to prefetch"),
        ("pin_memory", False, True, "copies to the GPU overlap computation"),
        ("precision", "fp32", "bf16", "faster products; losses track fp32"),
    ],
)
def test_the_direction_counts(knob: str, before: object, after: object, phrase: str) -> None:
    assert BY_NAME[knob].reason(before, after, Settings()).startswith(phrase)


def test_what_follows_from_another_knob_says_so() -> None:
    moved = changed(Settings(processes=2, threads=4, num_workers=1), Settings(threads=8))
    reasons = {knob: reason for knob, _before, _after, reason in moved}
    assert reasons["threads"] == "2 processes share the cores"
    assert reasons["prefetch_factor"] == "PyTorch's default with workers"
    assert list(reasons) == ["processes", "threads", "backend", "num_workers", "prefetch_factor"]
