"""The largest batch that would fit."""

from __future__ import annotations

import pytest

from autotune.diagnosis.memory import largest, refined, sample_bytes

from .records import SIZES


def test_a_sample_takes_its_activations_twice_and_itself() -> None:
    assert sample_bytes(SIZES, 64) == (2 * 3200 + 640) / 64


def test_a_larger_batch_that_ran_says_it_better() -> None:
    assert refined(SIZES, 64, 128, 16_400) == pytest.approx(100.0)


@pytest.mark.parametrize(("larger", "peak"), [(100, 20_000), (128, 9_000)])
def test_but_not_where_it_was_hardly_larger_or_the_peak_did_not_move(larger: int, peak: int) -> None:
    assert refined(SIZES, 64, larger, peak) == sample_bytes(SIZES, 64)


def test_a_tenth_of_the_memory_stays_free() -> None:
    assert largest(SIZES, 64, 100.0, 1, 100_000) == 64 + 800


def test_processes_share_the_memory() -> None:
    assert largest(SIZES, 64, 100.0, 2, 100_000) == 2 * (64 + 350)


def test_nothing_fits_where_there_is_no_room() -> None:
    assert largest(SIZES, 64, 1.0, 1, 100) == 0
