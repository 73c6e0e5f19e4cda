"""How often the tuner is wrong, on many seeds of machines with known truth, in simulated time."""

from __future__ import annotations

from autotune.knobs.knob import LEVELS
from autotune.stats.decide import Verdict
from autotune.tuning.result import proven_answers
from benchmarks.simulation import machines
from tests.doubles.fake_bench import (
    FAST,
    FASTER,
    LARGE,
    LOW,
    MACHINE,
    OWN,
    FakeBench,
    listed,
    make,
    run,
    speeds,
    wandering,
)


def test_default_is_kept_where_it_is_best() -> None:
    """L08, 100 seeds: whatever luck chose for the proof, the default is what is written."""
    kept = 0
    for seed in range(100):
        results = proven_answers(run(make(FakeBench(MACHINE.rate, seed), wandering(seed))), LEVELS)
        kept += all(result.settings == OWN and not result.proven for result in results.values())
    assert kept >= 99


def test_no_effect_is_answered_by_no_gain_or_cannot_tell() -> None:
    """M03, 100 seeds of a machine where nothing matters."""
    claims = 0
    for seed in range(100):
        state = run(make(FakeBench(machines.flat().rate, seed), wandering(seed)))
        for result in proven_answers(state, LEVELS).values():
            claims += result.proven
            assert result.proven or result.verdict in (Verdict.CANNOT_TELL, Verdict.NO_GAIN, Verdict.NOT_TRIED)
    assert claims <= 3 * 2, "each claim of level safe is carried by the two above it"


def test_a_slower_setting_is_never_written() -> None:
    for seed in range(30):
        bench = FakeBench(lambda chosen: 1000.0 if chosen == OWN else 800.0, seed, noise=(0.3, 0.02, 0.05))
        results = proven_answers(run(make(bench, wandering(seed))), LEVELS)
        assert all(result.settings == OWN for result in results.values())


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
