"""What failures forbid, case by case."""

from __future__ import annotations

import pytest

from autotune.knobs.settings import Settings
from autotune.search.history import Trial
from autotune.search.rules import Forbidden
from autotune.stats.measurement import Block, Measurement
from autotune.stats.outcome import Completed, Crashed, NotApplied, Outcome, OutOfMemory, TimedOut, WrongNumbers

BASE = Settings(threads=2, interop_threads=2, batch_size=64)
FINE = Completed(measurement=Measurement((Block(10, 1.0, 1),)))


def forbidden(*trials: tuple[Settings, Outcome]) -> Forbidden:
    return Forbidden(Trial(settings, outcome, "safe") for settings, outcome in trials)


@pytest.mark.parametrize(
    ("settings", "outcome", "other", "expected"),
    [
        (BASE.but(batch_size=128), OutOfMemory(where="device"), BASE.but(batch_size=256), True),
        (BASE.but(batch_size=128), OutOfMemory(where="device"), BASE.but(batch_size=128, threads=1), True),
        (BASE.but(batch_size=128), OutOfMemory(where="device"), BASE.but(batch_size=96), False),
        (BASE.but(batch_size=128), OutOfMemory(where="device"), BASE.but(batch_size=128, precision="bf16"), False),
        (BASE.but(batch_size=128), OutOfMemory(where="device"), BASE.but(batch_size=128, channels_last=True), False),
        (BASE.but(batch_size=128), OutOfMemory(where="device"), BASE.but(batch_size=128, malloc="keep"), True),
        (BASE.but(batch_size=128), OutOfMemory(where="host"), BASE.but(batch_size=128, malloc="keep"), False),
        (BASE.but(num_workers=2), OutOfMemory(where="host"), BASE.but(num_workers=4), True),
        (BASE.but(num_workers=2), OutOfMemory(where="host"), BASE.but(num_workers=1), False),
        (BASE.but(batch_size=128), OutOfMemory(where="host"), BASE.but(batch_size=128, num_workers=1), True),
        (BASE.but(num_workers=2), OutOfMemory(where="shm"), BASE.but(num_workers=1, prefetch_factor=8), True),
        (BASE.but(num_workers=2), OutOfMemory(where="shm"), BASE.but(num_workers=1), False),
        (BASE.but(precision="bf16"), WrongNumbers(), BASE.but(precision="bf16", threads=1), True),
        (BASE.but(precision="bf16"), WrongNumbers(), BASE.but(threads=1), False),
        (BASE.but(compile="default"), WrongNumbers(), BASE.but(compile="default", threads=1), True),
        (BASE.but(precision="bf16", compile="default"), WrongNumbers(), BASE.but(precision="bf16"), False),
        (BASE.but(allocator="jemalloc"), NotApplied(knob="allocator"), BASE.but(allocator="jemalloc", threads=1), True),
        (BASE.but(num_workers=1), Crashed(), BASE.but(num_workers=1, threads=1), True),
        (BASE.but(num_workers=1), Crashed(), BASE.but(threads=1), False),
        (BASE.but(compile="default"), TimedOut(), BASE.but(compile="default", threads=1), True),
    ],
)
def test_one_failure(settings, outcome, other, expected):
    assert forbidden((BASE, FINE), (settings, outcome))(other) is expected


def test_a_success_narrows_the_blame():
    failed = BASE.but(channels_last=True, allocator="jemalloc")
    suspects = forbidden((BASE, FINE), (failed, Crashed()))
    assert not suspects(BASE.but(channels_last=True))
    narrowed = forbidden((BASE, FINE), (failed, Crashed()), (BASE.but(channels_last=True), FINE))
    assert narrowed(BASE.but(allocator="jemalloc"))


def test_memory_is_climbed_not_jumped_at():
    avoid = forbidden((BASE, FINE))
    assert not avoid(BASE.but(batch_size=256))
    assert avoid(BASE.but(batch_size=512))
