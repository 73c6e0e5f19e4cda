"""Each knob has a reason for each way it can move."""

from __future__ import annotations

import pytest

from autotune.core.knobs import KNOBS
from autotune.core.settings import (
    ALLOCATORS,
    BACKENDS,
    BINDINGS,
    COMPILE_MODES,
    KNOB_NAMES,
    OPTIMIZER_IMPLS,
    PRECISIONS,
    Settings,
)
from autotune.report.why import LESS, MORE, WHY, changed, why

VALUES = {
    "backend": BACKENDS,
    "binding": BINDINGS,
    "optimizer_impl": OPTIMIZER_IMPLS,
    "allocator": ALLOCATORS,
    "compile": COMPILE_MODES,
    "precision": PRECISIONS,
}


def test_there_is_a_row_for_every_knob() -> None:
    assert set(WHY) == {knob.name for knob in KNOBS} == set(KNOB_NAMES)


@pytest.mark.parametrize("knob", [knob.name for knob in KNOBS])
def test_every_move_has_a_short_reason(knob: str) -> None:
    moves = VALUES.get(knob) or ((MORE, LESS) if KNOBS[KNOB_NAMES.index(knob)].ordinal else (True, False))
    for value in moves:
        assert 0 < len(WHY[knob][value]) <= 40
    assert set(WHY[knob]) - {None} == set(moves)


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
    assert why(knob, before, after).startswith(phrase)


def test_what_follows_from_another_knob_says_so() -> None:
    moved = changed(Settings(processes=2, threads=4, num_workers=1), Settings(threads=8))
    reasons = {knob: reason for knob, _before, _after, reason in moved}
    assert reasons["threads"] == "2 processes share the cores"
    assert reasons["prefetch_factor"] == "PyTorch's default with workers"
    assert list(reasons) == ["processes", "threads", "backend", "num_workers", "prefetch_factor"]
