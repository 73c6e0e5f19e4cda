"""A diagnosis in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.diagnosis.diagnose import Diagnosis, diagnose
from autotune.diagnosis.memory import LargestBatch
from autotune.report.diagnosis import bound, text
from autotune.report.formatting import WIDTH
from tests.diagnosis.records import LIMITS, gain, inspection, rounds

from .records import BASELINE


@pytest.fixture
def found() -> Diagnosis:
    seen = diagnose(rounds(loader=4.0, update=1.1), inspection(), LIMITS, BASELINE, "samples", 6400.0)
    return replace(seen, largest_batch=LargestBatch(4096, False, 512, 2**30))


def test_says_what_bounds_the_step_and_what_each_part_could_bring(found: Diagnosis) -> None:
    shown = " ".join(text("model", found, 14.6).split())
    for part in (
        "diagnose model (15 s)",
        "Verdict input-bound: the training process itself reads and augments samples",
        "alone: loader 10 ms a batch, update 1 ms, start of an epoch 100 ms",
        "a free loader: 4.00x (",
        "a free update: 1.10x (",
        "of this machine's matrix rate",
        "aten::mm 64x32 32x8: 2 ms in 2 calls",
        "largest batch: about 4096 samples with 10 % headroom; ran with 512: 1.0 GiB",
    ):
        assert part in shown


def test_fits_a_terminal(found: Diagnosis) -> None:
    assert all(len(line) <= WIDTH for line in text("model", found, 14.6).splitlines())


def test_the_best_bound_comes_first(found: Diagnosis) -> None:
    shown = text("model", found, 1.0)
    assert shown.index("a free loader") < shown.index("a free update")


def test_exchange_and_copies_are_shown_where_there_are_some(found: Diagnosis) -> None:
    several = replace(found, inspection=inspection(exchange_seconds=0.002, copy_seconds=0.0001))
    shown = " ".join(text("model", several, 1.0).split())
    assert "gradient exchange 2 ms" in shown
    assert "copy to the device 100 us (1 KiB)" in shown


def test_what_the_allocator_of_a_device_holds_is_shown(found: Diagnosis) -> None:
    sizes = replace(found.inspection.sizes, reserved=2**30, split=2**20)
    on_device = replace(found, inspection=replace(found.inspection, sizes=sizes))
    shown = " ".join(text("m", on_device, 1.0).split())
    assert "the allocator holds 1.0 GiB of the device, 1 MiB of it in unused parts of blocks" in shown
    assert "the allocator holds" not in text("m", found, 1.0)


def test_a_small_dataset_fits_whole(found: Diagnosis) -> None:
    small = replace(found, largest_batch=LargestBatch(512, True))
    assert "the whole dataset fits in one batch with 10 % headroom; not run" in " ".join(text("m", small, 1.0).split())


def test_an_open_interval_has_words() -> None:
    assert bound(gain(2.0, 1.5, float("inf"))) == "2.00x (1.50 to any)"
