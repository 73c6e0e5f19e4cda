"""Verdicts on steps whose cause is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.diagnosis.inspection import LoaderAlone
from autotune.diagnosis.passes import BANDWIDTH, COMPUTE, OVERHEAD, PassSeconds
from autotune.diagnosis.verdict import (
    DISK,
    INPUT,
    KINDS,
    MAIN_PROCESS,
    PASSES,
    SENTENCES,
    SLOW_SOURCE,
    THREADS,
    WORKERS,
    verdict,
)
from autotune.knobs.settings import Settings
from autotune.trial.parts import EXCHANGE, LOADER, UPDATE

from .records import BUSY, gain, inspection

COMPUTES = PassSeconds(overhead=1.0, compute=8.0, bandwidth=1.0)
WAITS = replace(BUSY, main_busy=0.1)
WORKERS_BUSY = replace(WAITS, worker_busy=0.95)
READS = replace(WAITS, storage_bytes=1e6)


def kind(
    gains: dict[str, Any], passes: PassSeconds = COMPUTES, loader: LoaderAlone | None = BUSY, workers: int = 0
) -> str:
    return verdict(gains, inspection(loader=loader), passes, Settings(num_workers=workers)).kind


@pytest.mark.parametrize(
    ("loader", "workers", "found"),
    [
        (BUSY, 0, MAIN_PROCESS),
        (WAITS, 0, SLOW_SOURCE),
        (READS, 0, DISK),
        (READS, 2, DISK),
        (WORKERS_BUSY, 2, WORKERS),
        (None, 0, INPUT),
    ],
)
def test_a_loader_is_slow_for_a_reason(loader: LoaderAlone | None, workers: int, found: str) -> None:
    assert kind({LOADER: gain(5.0), UPDATE: gain(1.1)}, loader=loader, workers=workers) == found


@pytest.mark.parametrize("part", [UPDATE, EXCHANGE])
def test_the_part_that_takes_most_bounds_the_step(part: str) -> None:
    assert kind({LOADER: gain(1.1), UPDATE: gain(1.1), EXCHANGE: gain(1.1), part: gain(3.0)}) == KINDS[part]


@pytest.mark.parametrize(
    ("passes", "found"),
    [
        (COMPUTES, COMPUTE),
        (PassSeconds(overhead=5.0, compute=1.0, bandwidth=2.0), OVERHEAD),
        (PassSeconds(overhead=1.0, compute=1.0, bandwidth=2.0), BANDWIDTH),
    ],
)
def test_what_is_left_is_bound_by_what_bounds_the_passes(passes: PassSeconds, found: str) -> None:
    assert kind({LOADER: gain(1.0), UPDATE: gain(1.2)}, passes) == KINDS[found]


@pytest.mark.parametrize(
    ("threads", "oversubscribed"),
    [(gain(2.0, 0.5, 8.0), True), (gain(1.1, 1.06, 1.2), True), (gain(1.1, 0.9, 1.3), False)],
)
def test_threads_come_first_where_fewer_are_faster(threads: Any, oversubscribed: bool) -> None:
    assert (kind({LOADER: gain(5.0), THREADS: threads}) == KINDS[THREADS]) == oversubscribed


def test_other_causes_are_named_where_they_are_sure() -> None:
    found = verdict(
        {LOADER: gain(2.0, 1.8, 2.2), UPDATE: gain(1.4, 1.3, 1.5)}, inspection(), COMPUTES, Settings(num_workers=0)
    )
    assert found.others == (UPDATE, PASSES)[: len(found.others)]
    assert "also the update takes 29%" in found.sentence
    unsure = verdict({LOADER: gain(2.0), UPDATE: gain(1.4, 0.9, 2.0)}, inspection(), COMPUTES, Settings())
    assert "update" not in unsure.sentence


def test_a_part_that_seems_to_help_takes_nothing() -> None:
    found = verdict({LOADER: gain(0.9)}, inspection(), COMPUTES, Settings())
    assert found.shares == {LOADER: 0.0, PASSES: 1.0}


def test_every_kind_has_its_sentence() -> None:
    assert set(SENTENCES) == {INPUT, DISK, MAIN_PROCESS, SLOW_SOURCE, WORKERS, *KINDS.values()}
