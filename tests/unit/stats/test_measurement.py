import json
import math
import random
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.decoding import decoded
from autotune.stats.measurement import MOST_CPU_WAIT, Block, Measurement, enough, is_steady, log_standard_error

SECONDS = st.floats(1e-3, 10.0)
BLOCKS = st.builds(
    Block,
    items=st.integers(0, 10**6),
    seconds=SECONDS,
    steps=st.integers(1, 1000),
    cpu_wait=st.sampled_from([0.0, 0.1, MOST_CPU_WAIT, 0.21, 0.9]),
)


class TestRate:
    def test_is_items_over_wall_time_not_a_mean_of_rates(self) -> None:
        measured = Measurement((Block(100, 1.0, 10), Block(100, 4.0, 10)))
        assert measured.rate == 200 / 5.0  # the mean of the rates is 62.5, their harmonic mean with these items 40

    @given(st.lists(BLOCKS, min_size=1, max_size=10))
    def test_lies_between_the_slowest_and_the_fastest_kept_block(self, measured: list[Block]) -> None:
        measurement = Measurement(tuple(measured))
        rates = [block.rate for block in measurement.kept]
        assert min(rates) * (1 - 1e-9) <= measurement.rate <= max(rates) * (1 + 1e-9)


class TestDisturbed:
    @pytest.mark.parametrize(("cpu_wait", "dropped"), [(0.0, False), (MOST_CPU_WAIT, False), (0.21, True), (1.0, True)])
    def test_blocks_are_dropped_for_cpu_wait(self, cpu_wait: float, dropped: bool) -> None:
        spoiled = Block(10, 1.0, 1, cpu_wait)
        measurement = Measurement((Block(100, 1.0, 1), spoiled))
        assert spoiled.disturbed is dropped
        assert (spoiled not in measurement.kept) is dropped

    def test_where_all_are_disturbed_that_is_this_machines_normal(self) -> None:
        always = tuple(Block(100, 1.0, 1, 0.5) for _ in range(3))
        assert Measurement(always).kept == always
        assert Measurement(always).rate == 100.0


class TestStandardError:
    @pytest.mark.parametrize("rates", [[], [100.0], [100.0, 0.0], [0.0, 0.0]])
    def test_is_infinite_where_nothing_can_be_said(self, rates: list[float]) -> None:
        assert log_standard_error(rates) == math.inf

    def test_covers_the_truth_of_correlated_noise(self) -> None:
        """Blocks with lag-1 correlation 0.5: ignoring it would claim errors a good third too small."""
        draw, spreads, claims = random.Random(1), [], []
        for _ in range(300):
            value, logs = draw.gauss(0, 1), []
            for _ in range(20):
                value = 0.5 * value + math.sqrt(0.75) * draw.gauss(0, 1)
                logs.append(0.05 * value)
            spreads.append(sum(logs) / len(logs))
            claims.append(log_standard_error([math.exp(log) for log in logs]))
        true = math.sqrt(sum(spread**2 for spread in spreads) / len(spreads))
        assert 0.8 * true < sorted(claims)[150] < 1.3 * true


class TestSteady:
    @pytest.mark.parametrize(
        ("paces", "steady"),
        [
            *(([1.0] * count, count == 6) for count in range(7)),
            ([2.0 * 0.9**k for k in range(6)], False),  # speeding up
            ([1.0 * 1.1**k for k in range(6)], False),  # slowing down
            ([4.0, 2.0, 1.0, 1.0, 1.0, 1.0], False),
            ([100.0, 1.0, 1.0, 1.0, 1.0, 1.0], False),  # one compile
            ([1.0, 1.0, 1.0, 1.1, 1.1, 1.1], False),
            ([1.0, 1.02, 0.99, 1.01, 1.0, 0.99], True),  # within 3 %
            ([1.0, 2.0, 1.0, 2.0, 1.0, 2.0], True),  # within its own scatter
            ([50.0, 10.0, *[1.0] * 6], True),  # old news
        ],
    )
    def test_once_six_blocks_agree(self, paces: list[float], steady: bool) -> None:
        assert is_steady(paces) is steady


@given(st.lists(BLOCKS, max_size=5), st.integers(0, 9), st.floats(0, 1))
def test_survives_json(measured: list[Block], skipped: int, share: float) -> None:
    measurement = Measurement(tuple(measured), 0.5, 7, skipped, 0.25, share)
    assert decoded(Measurement, json.loads(json.dumps(asdict(measurement)))) == measurement


@pytest.mark.parametrize(
    ("items", "give_up_below", "stops"),
    [
        ((100, 100, 100), 0.0, True),
        ((100, 100), 0.0, False),
        ((100, 150) * 2, 0.0, False),
        ((*(100, 150) * 5, 100), 0.0, True),
        ((100,), 1200.0, True),  # a clear loser
        ((100,), 1100.0, False),
    ],
)
def test_a_trial_stops_when_its_blocks_agree_or_its_time_is_over(items, give_up_below, stops) -> None:
    """Blocks of 0.1 s; at least 0.3 s, at most 1 s, an error of 1.5 %."""
    measured = Measurement(tuple(Block(count, 0.1, 1) for count in items))
    assert enough(measured, 0.3, 1.0, 0.015, give_up_below) is stops
