"""How often the tuner is wrong, on many seeds of machines with known truth, in simulated time."""

from __future__ import annotations

import pytest

from autotune.knobs.level import LEVELS
from autotune.stats.decide import LevelVerdict
from autotune.tuning.result import proven_answers
from tests.doubles.fake_bench import (
    FAST,
    FASTER,
    LARGE,
    LOW,
    FakeBench,
    listed,
    make,
    run,
    speeds,
    wandering,
)
from tests.unit.tuning.test_run import NO_GAIN


@pytest.mark.parametrize(("name", "seeds", "claims"), zip(NO_GAIN, (100, 100, 30), (3, 3 * 2, 0), strict=True))
def test_the_default_is_kept(name: str, seeds: int, claims: int) -> None:
    """L08, M03. Whatever luck chose for the proof. Each claim of level safe is carried by the two above it."""
    rate, noise = NO_GAIN[name]
    for seed in range(seeds):
        state = run(make(FakeBench(rate, seed, noise=noise), wandering(seed)))
        for result in proven_answers(state, LEVELS).values():
            claims -= result.proven
            assert result.proven or result.verdict in (
                LevelVerdict.CANNOT_TELL,
                LevelVerdict.NO_GAIN,
                LevelVerdict.NOT_TRIED,
            )
    assert claims >= 0


def test_a_clear_gain_is_found_and_its_interval_covers_it() -> None:
    rate = speeds({FAST: 1.3, FASTER: 1.5, LOW: 2.0, LARGE: 3.0})
    found, covered = 0, 0
    for seed in range(60):
        search = listed(safe=[FAST, FASTER], amp=[LOW], max=[LARGE])
        results = proven_answers(run(make(FakeBench(rate, seed), search)), LEVELS)
        found += [results[level].settings for level in LEVELS] == [FASTER, LOW, LARGE]
        for result, true in zip(results.values(), (1.5, 2.0, 3.0), strict=True):
            assert result.proven
            covered += result.speedup.low <= true <= result.speedup.high
    assert found >= 57
    assert covered >= 0.93 * 3 * 60
