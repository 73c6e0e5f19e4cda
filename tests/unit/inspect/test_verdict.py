"""Verdicts on steps whose cause is known."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.inspect.verdict import Bound, Inspection, Part, bounds, conclude, verdict
from autotune.knobs.settings import Settings
from tests.doubles.inspections import facts, gain, inspection, rounds

OWN = Settings(threads=2, batch_size=10)


def bound(found: Inspection, *, neighbours: float = 0.0, settings: Settings = OWN, **gains: float) -> Bound:
    return verdict(bounds(found, rounds(**gains) if gains else ()), found, settings, neighbours).bound


class TestBounds:
    def test_the_clock_alone_gives_each_parts_bound(self) -> None:
        found = bounds(inspection(loader=0.5))[Part.LOADER]
        assert found.value == pytest.approx(2.0, rel=0.02)
        assert 1.5 < found.low < 2.0 < found.high < 2.6
        one_block = bounds(inspection(noise=(0.0,), loader=0.5))[Part.LOADER]
        assert (one_block.low, one_block.high) == (1.0, math.inf)

    def test_rounds_count_if_they_contradict_the_clock(self) -> None:
        """Workers take CPUs from the passes: without a loader the step is faster than its waits explain."""
        found = bounds(inspection(loader=0.02), rounds(loader=1.6))
        assert found[Part.LOADER].value == pytest.approx(1.6)

    def test_wide_rounds_do_not_hide_a_clear_clock(self) -> None:
        """Seen beside a neighbour: a free update 3.46x (0.00 to 2584.73)."""
        apart = [
            replace(turn, rates={"step": 1000.0, "optimizer": 1000.0 * (3.0 + 8 * (turn.replicate - 1))})
            for turn in rounds()[2:]
        ]
        found = bounds(inspection(optimizer=0.1), apart)[Part.UPDATE]
        assert found.high < 1.3

    @given(st.lists(st.floats(0, 1), min_size=4, max_size=4), st.floats(0.1, 9), st.floats(0.1, 9))
    def test_shares_are_never_above_one(self, parts: list[float], loader: float, update: float) -> None:
        whole = max(1.0, sum(parts))
        own = dict(zip(("loader", "optimizer", "gradient_sync", "loop"), (each / whole for each in parts), strict=True))
        found = inspection(noise=(0.0, 0.0, 0.0), **own)
        shares = verdict(bounds(found, rounds(loader=loader, optimizer=update)), found, OWN, 0.0).shares
        assert sum(shares.values()) == pytest.approx(1.0)
        assert all(-1e-9 <= share <= 1 + 1e-9 for share in shares.values())


BESIDE = {"neighbours": 1.0}


@pytest.mark.parametrize(
    ("found", "beside", "expected"),
    [
        (inspection(optimizer=0.6), {}, Bound.UPDATE),
        (inspection(gradient_sync=0.6), {}, Bound.GRADIENT_SYNC),
        (inspection(loop=0.6), {}, Bound.LOOP),
        (inspection(forward_backward=0.6), {}, Bound.PASSES),
        *(
            (replace(inspection(loader=0.6), loader=why), {}, why)
            for why in (Bound.DISK, Bound.WORKERS, Bound.SLOW_SOURCE, Bound.MAIN_PROCESS)
        ),
        # Fewer threads come first if they bring more.
        (inspection(), {"threads": 1.5}, Bound.THREADS),
        (inspection(), {"threads": 1.0}, Bound.PASSES),
        (inspection(loader=0.9), {"threads": 1.5}, Bound.MAIN_PROCESS),
        (inspection(loop=0.55), {"threads": 4.0}, Bound.THREADS),
        # No interval excludes one.
        (inspection(noise=(0.0,), optimizer=0.9), {}, Bound.FEW_STEPS),
        # Threads that wait for neighbours show nothing of the passes.
        (inspection(lost=0.3), BESIDE, Bound.BUSY),
        (inspection(lost=0.3, optimizer=0.6), BESIDE, Bound.BUSY),
        (inspection(lost=0.3), {"neighbours": 0.1}, Bound.PASSES),
        (inspection(lost=0.05), BESIDE, Bound.PASSES),
        (inspection(lost=0.3), {**BESIDE, "settings": OWN.but(threads=1)}, Bound.PASSES),
        (inspection(lost=0.3, loop=0.6), BESIDE, Bound.LOOP),  # which has one thread
    ],
)
def test_the_part_that_takes_most_bounds_the_step(found: Inspection, beside: dict[str, Any], expected: Bound) -> None:
    assert bound(found, **beside) is expected


def test_while_fewer_threads_may_be_much_faster_nothing_is_said_of_the_passes() -> None:
    """Seen: the passes were blamed, of 24 threads on two CPUs."""
    found = inspection()
    open_end = bounds(found) | {Part.THREADS: gain(1.3, 0.1, 7.3)}
    assert verdict(open_end, found, OWN, 0.0).bound is Bound.FEW_STEPS
    assert verdict(open_end | {Part.THREADS: gain(1.0, 0.9, 1.1)}, found, OWN, 0.0).bound is Bound.PASSES


@pytest.mark.parametrize("turns", [[], rounds(loader=1.1)], ids=["clock", "rounds"])
def test_time_rate_and_batch_agree(turns: list[Any]) -> None:
    """Seen: ``Step 31.7 ms, 24551 samples/s, batch 32``."""
    found = conclude(OWN, facts(), inspection(), turns)
    assert found.rate * found.step_seconds == pytest.approx(OWN.global_batch)
