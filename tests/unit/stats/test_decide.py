"""The answer for each level by the proof's rounds."""

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.knobs.settings import Settings
from autotune.stats.decide import OTHER_EFFECTS, LevelVerdict, Reason, decide, possible, still_open, undisturbed
from autotune.stats.proof import BASELINE, Round, compare

OWN = Settings(threads=2, batch_size=32)
SAFE = OWN.but(num_workers=2)
AMP = SAFE.but(precision="bf16")
MAX = AMP.but(batch_size=128)
ALL = {"safe": SAFE, "amp": AMP, "max": MAX}
LEVELS = ("safe", "amp", "max")


def proof_rounds(noise: float = 0.002, replicates: int = 4, seed: int = 0, **speeds: float) -> list[Round]:
    """Three rounds per replicate; a candidate's rate is its speed times 100, with a little noise."""
    draw = random.Random(seed)
    return [
        Round(number, {name: 100 * speed * math.exp(draw.gauss(0, noise)) for name, speed in speeds.items()})
        for number in range(1, replicates + 1)
        for _ in range(3)
    ]


class TestAccepting:
    def test_each_level_that_is_proven_keeps_its_own(self) -> None:
        results = decide(OWN, 100.0, ALL, proof_rounds(baseline=1, safe=1.2, amp=1.5, max=2.0))
        assert [results[level].settings for level in LEVELS] == [SAFE, AMP, MAX]
        assert all(results[level].proven and results[level].verdict is LevelVerdict.GAIN for level in LEVELS)
        assert [results[level].rate for level in LEVELS] == pytest.approx([120, 150, 200], rel=0.01)
        assert results["max"].speedup.value == pytest.approx(2.0, rel=0.01), "against the baseline, not the level below"

    @pytest.mark.parametrize(
        ("speeds", "expected"),
        [
            ({"safe": 1.2, "amp": 1.2, "max": 1.2}, (SAFE, SAFE, SAFE)),
            ({"safe": 1.2, "amp": 1.1, "max": 1.5}, (SAFE, SAFE, MAX)),
            ({"safe": 1.0, "amp": 1.3, "max": 1.3}, (OWN, AMP, AMP)),
            ({"safe": 0.8, "amp": 0.9, "max": 1.2}, (OWN, OWN, MAX)),
            ({"safe": 0.7, "amp": 1.0, "max": 1.0}, (OWN, OWN, OWN)),  # faster than safe is not enough
            ({"safe": 1.0, "amp": 1.0, "max": 1.0}, (OWN, OWN, OWN)),
        ],
    )
    def test_a_level_must_beat_the_baseline_and_the_level_below(self, speeds, expected) -> None:
        results = decide(OWN, 100.0, ALL, proof_rounds(baseline=1, **speeds))
        assert tuple(results[level].settings for level in LEVELS) == expected

    def test_a_speedup_that_nobody_believes_is_not_proven(self) -> None:
        """Seen: 173 times as fast by one knob, and 91 times, on two CPUs beside a load of 12."""
        results = decide(OWN, 100.0, ALL, proof_rounds(baseline=1, safe=1.2, amp=2000, max=2000))
        assert [results[level].settings for level in LEVELS] == [SAFE, SAFE, SAFE]
        assert results["amp"].verdict is LevelVerdict.CANNOT_TELL
        assert not decide(OWN, 100.0, {"safe": SAFE}, proof_rounds(baseline=1, safe=173.09))["safe"].proven

    @pytest.mark.parametrize(
        ("baseline", "own", "most"),
        [
            ({}, {"malloc": "keep", "optimizer_impl": "fused"}, 1),
            ({"threads": 64}, {"threads": 1}, 4),
            ({}, {"omp_wait_policy": "passive"}, 4),
            ({"threads": 1}, {"threads": 4, "processes": 2, "batch_size": 16}, 8),
            ({}, {"num_workers": 3}, 4),
            ({"num_workers": 4}, {}, 1),
            ({}, {"precision": "bf16"}, 16),
            ({"batch_size": 8}, {"batch_size": 64}, 8),
            ({}, {"num_workers": 63, "precision": "bf16"}, 100),
        ],
    )
    def test_how_much_faster_settings_can_be(self, baseline: dict[str, Any], own: dict[str, Any], most: float) -> None:
        assert possible(OWN.but(**own), OWN.but(**baseline)) == OTHER_EFFECTS * most


class TestReasons:
    @pytest.mark.parametrize(
        ("turns", "reason", "verdict"),
        [
            (proof_rounds(baseline=1, safe=0.98), Reason.SAME, LevelVerdict.NO_GAIN),
            (proof_rounds(noise=0.1, baseline=1, safe=1.05), Reason.UNPROVEN, LevelVerdict.CANNOT_TELL),
            (proof_rounds(replicates=0, baseline=1, safe=3.0), Reason.TOO_FEW_ROUNDS, LevelVerdict.CANNOT_TELL),
            (proof_rounds(replicates=1, baseline=1, safe=3.0), Reason.TOO_FEW_ROUNDS, LevelVerdict.CANNOT_TELL),
        ],
        ids=["no gain", "not proven", "no round", "one replicate"],
    )
    def test_without_a_gain(self, turns: list[Round], reason: Reason, verdict: LevelVerdict) -> None:
        found = decide(OWN, 100.0, {"safe": SAFE}, turns)["safe"]
        assert (found.settings, found.proven, found.reason, found.verdict) == (OWN, False, reason, verdict)
        assert found.proof == compare(turns, "safe", BASELINE)

    def test_a_candidate_that_never_ran_carries_the_level_below(self) -> None:
        results = decide(OWN, 100.0, ALL, proof_rounds(baseline=1, safe=1.2))
        assert results["safe"].proven
        assert (results["amp"].settings, results["amp"].reason) == (SAFE, Reason.TOO_FEW_ROUNDS)

    def test_the_same_settings_again_are_the_level_below(self) -> None:
        results = decide(OWN, 100.0, {"safe": SAFE, "amp": SAFE}, proof_rounds(baseline=1, safe=1.3, amp=9.0))
        assert results["amp"].settings == SAFE
        assert results["amp"].reason is Reason.SAME
        assert results["amp"].speedup == results["safe"].speedup


class TestStillOpen:
    @pytest.mark.parametrize(
        ("speeds", "noise", "expected"),
        [
            ({"safe": 1.5, "amp": 2.0}, 0.002, set()),
            ({"safe": 0.7, "amp": 0.6}, 0.002, set()),
            ({"safe": 1.05, "amp": 2.0}, 0.1, {BASELINE, "safe"}),
            ({"safe": 1.5, "amp": 1.52}, 0.02, {"safe", "amp"}),
            ({"safe": 0.5, "amp": 1.1}, 0.05, {BASELINE, "amp"}),
        ],
        ids=["clear gains", "clear losses", "against the baseline", "against the level below", "the one below is lost"],
    )
    def test_who_could_still_change_the_answer(self, speeds, noise, expected) -> None:
        turns = proof_rounds(noise=noise, baseline=1, **speeds)
        assert still_open({"safe": SAFE, "amp": AMP}, turns) == expected


SPEEDS = st.floats(0.5, 2.0)


@given(SPEEDS, SPEEDS, SPEEDS, st.floats(0, 0.2), st.integers(0, 99), st.integers(0, 6))
def test_whatever_the_rounds_the_answer_holds_together(safe, amp, largest, noise, seed, replicates) -> None:
    turns = proof_rounds(noise, replicates, seed, baseline=1.0, safe=safe, amp=amp, max=largest)
    results = decide(OWN, 100.0, ALL, turns)
    assert tuple(results) == LEVELS
    rates = [100.0 if not result.proven else result.rate for result in results.values()]
    for level, result in results.items():
        assert result.settings in (OWN, *ALL.values())
        assert result.proven == result.speedup.gain == (result.settings != OWN)
        assert (result.settings == ALL[level]) == (result.reason is Reason.NONE)
    if all(result.settings == ALL[level] for level, result in results.items()):
        assert rates == sorted(rates)


def rounds(baseline: float, neighbours: float, replicates: range) -> list[Round]:
    """Four rounds of each replicate, in which ``safe`` makes 500 items/s beside any neighbour."""
    rates = {"baseline": baseline, "safe": 500.0}
    return [Round(number, rates, neighbours) for number in replicates for _ in range(4)]


class TestBesideNeighbours:
    QUIET = rounds(400.0, 0.05, range(1, 4))

    def test_a_baseline_that_collapsed_is_no_headline(self) -> None:
        kept, slower = undisturbed(self.QUIET + rounds(25.0, 1.0, range(4, 6)))
        assert (kept, slower) == (self.QUIET, pytest.approx(16.0))

    @pytest.mark.parametrize(
        "others",
        [rounds(350.0, 1.0, range(4, 6)), rounds(25.0, 1.0, range(4, 5)), rounds(25.0, 0.3, range(4, 6)), []],
        ids=["nothing lost", "too few", "too little", "none"],
    )
    def test_otherwise_all_rounds_decide(self, others: list[Round]) -> None:
        assert undisturbed(self.QUIET + others) == (self.QUIET + others, None)

    def test_a_load_that_never_ends_is_what_the_figures_hold_for(self) -> None:
        busy = rounds(25.0, 1.0, range(1, 4))
        assert undisturbed(busy) == (busy, None)
