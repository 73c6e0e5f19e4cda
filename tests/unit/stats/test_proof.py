"""The statistics of the proof, against tables and against machines with known truth."""

import math
import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.stats.proof import (
    ANALYSES,
    CONFIDENCE,
    LOWER_ERROR,
    MIN_GAIN,
    UPPER_ERROR,
    Proof,
    Round,
    compare,
    student_quantile,
    to_decide,
)

NOISE = {"replicate": 0.02, "round": 0.05}


def rounds(ratios: list[list[float]], base: float = 100.0) -> list[Round]:
    """One inner list per replicate: the ratio of ``ours`` to ``theirs`` of each round."""
    return [
        Round(number, {"ours": base * ratio, "theirs": base})
        for number, replicate in enumerate(ratios)
        for ratio in replicate
    ]


def machine(seed: int, effect: float, spread: float = NOISE["replicate"]) -> Callable[[int], list[Round]]:
    """Generations of three rounds: each process has luck of its own, each block noise, both share a drifting base."""
    draw = random.Random(seed)

    def replicate(number: int) -> list[Round]:
        base = 1000 * math.exp(draw.gauss(0, 0.1))
        luck = [draw.gauss(0, spread) for _ in range(2)]
        return [
            Round(
                number,
                {
                    "ours": base * effect * math.exp(luck[0] + draw.gauss(0, NOISE["round"])),
                    "theirs": base * math.exp(luck[1] + draw.gauss(0, NOISE["round"])),
                },
            )
            for _ in range(3)
        ]

    return replicate


def two_analyses(seed: int, effect: float) -> Proof:
    """A first analysis after four replicates and, where undecided, one more after eight: as the tuner uses it."""
    replicate = machine(seed, effect)
    seen = [turn for number in range(4) for turn in replicate(number)]
    proof = compare(seen, "ours", "theirs")
    if proof.undecided:
        seen += [turn for number in range(4, 8) for turn in replicate(number)]
        proof = compare(seen, "ours", "theirs")
    return proof


class TestAnalyses:
    def test_spend_no_more_than_the_stated_error(self) -> None:
        assert sum(ANALYSES.values()) == pytest.approx(1.0)
        assert LOWER_ERROR + UPPER_ERROR <= 1 - CONFIDENCE
        assert list(ANALYSES) == sorted(ANALYSES)

    @pytest.mark.parametrize("replicates", range(2, 12))
    def test_a_last_analysis_spends_only_what_is_left(self, replicates: int) -> None:
        seen = rounds([[1.0], [1.05]] + [[1.02]] * (replicates - 2))
        open_still, last = (compare(seen, "ours", "theirs", final=final) for final in (False, True))
        assert open_still.low <= last.low <= last.value <= last.high <= open_still.high

    @pytest.mark.parametrize(
        ("value", "low", "high", "gain", "undecided"),
        [
            (1.0, 1.05, 1.2, True, False),
            (1.0, MIN_GAIN, 1.2, False, True),
            (1.0, 0.9, MIN_GAIN, False, False),
            (1.0, 0.0, math.inf, False, True),
            # What lies below a gain is given up; what is known little may yet be one.
            (0.985, 0.928, 1.046, False, False),
            (1.0, 0.942, 1.062, False, True),
            (1.04, 0.979, 1.104, False, True),
            (0.9, 0.701, 1.156, False, False),
            (0.96, 0.748, 1.233, False, True),
        ],
    )
    def test_a_claim_needs_the_whole_interval(self, value, low, high, gain, undecided) -> None:
        proof = Proof(value, low, high, CONFIDENCE, 9)
        assert (proof.gain, proof.undecided) == (gain, undecided)


class TestCompare:
    def test_is_the_geometric_mean_over_replicates(self) -> None:
        proof = compare(rounds([[2.0, 2.0], [0.5]]), "ours", "theirs")
        assert proof.value == pytest.approx(1.0), "a replicate counts once, however many rounds it has"
        assert proof.rounds == 3

    @pytest.mark.parametrize(
        ("seen", "value", "count"),
        [
            *((rounds([[2.0] * count]), 2.0, count) for count in (1, 3, 100)),
            ([], 1.0, 0),
            ([Round(0, {"ours": 1.0})], 1.0, 0),
            ([Round(0, {"theirs": 1.0})], 1.0, 0),
            ([Round(0, {"ours": 0.0, "theirs": 1.0}), Round(1, {"ours": 1.0, "theirs": 0.0})], 1.0, 0),
        ],
    )
    def test_one_replicate_proves_nothing_nor_do_rounds_without_the_other(self, seen, value, count) -> None:
        proof = compare(seen, "ours", "theirs")
        assert (proof.value, proof.low, proof.high, proof.rounds) == (pytest.approx(value), 0.0, math.inf, count)
        assert (proof.gain, proof.undecided) == (False, True)

    def test_rounds_in_which_one_was_missing_do_not_count(self) -> None:
        whole = rounds([[1.2], [1.3], [1.25]])
        ragged = [*whole, Round(3, {"ours": 900.0}), Round(3, {"theirs": 1.0})]
        assert compare(ragged, "ours", "theirs") == compare(whole, "ours", "theirs")

    @given(st.lists(st.lists(st.floats(0.2, 5.0), min_size=1, max_size=4), min_size=2, max_size=6))
    def test_the_other_way_round_is_the_inverse(self, ratios: list[list[float]]) -> None:
        seen = rounds(ratios)
        one, other = (compare(seen, *names, final=False) for names in (("ours", "theirs"), ("theirs", "ours")))
        assert one.value == pytest.approx(1 / other.value)
        assert one.low <= 1 / other.high * (1 + 1e-12), "the lower end, by which gains are claimed, is the stricter one"
        assert one.low <= one.value * (1 + 1e-12)
        assert one.value <= one.high * (1 + 1e-12)


class TestSimulated:
    """G03: 2 % luck of processes, 5 % noise of blocks; figures are those of the two analyses."""

    @pytest.mark.parametrize(
        ("effect", "least", "most"), [(0.9, 0, 0), (1.0, 0, 8), (1.05, 0, 400), (1.2, 380, 400)], ids=str
    )
    def test_claims_are_rare_where_nothing_is_gained_and_intervals_cover_the_truth(self, effect, least, most) -> None:
        proofs = [two_analyses(seed, effect) for seed in range(400)]
        assert least <= sum(proof.gain for proof in proofs) <= most
        assert sum(proof.low <= effect <= proof.high for proof in proofs) >= 0.93 * len(proofs)

    @pytest.mark.parametrize("replicates", [2, 4, 8])
    def test_false_claims_stay_rare_where_processes_differ_more_than_the_prior_expects(self, replicates: int) -> None:
        """8 % from process to process, as on a shared machine; two replicates are the fewest that may prove."""
        claims = 0
        for seed in range(400):
            replicate = machine(seed, effect=1.0, spread=0.08)
            seen = [turn for number in range(replicates) for turn in replicate(number)]
            claims += compare(seen, "ours", "theirs").gain
        assert claims <= 0.05 * 400


def by_logs(logs: Sequence[float], *, final: bool = True) -> Proof:
    """The proof of one round a replicate, of so many log ratios."""
    return compare(rounds([[math.exp(log)] for log in logs]), "ours", "theirs", final=final)


class TestSigns:
    """Faster is one question, how much is another: the interval also ends where the sign test says so."""

    @pytest.mark.parametrize(
        ("faster", "slower", "gain"),
        [
            (10, [], False),
            (12, [], True),
            (14, [], True),
            (24, [], True),
            (11, [-0.01], False),
            (21, [-0.01, -0.02, -0.03], True),
            (20, [-0.01, -0.02, -0.03, -0.04], False),
        ],
    )
    def test_where_nearly_all_of_a_dozen_are_faster_it_is_faster(self, faster, slower, gain) -> None:
        """By 5 % most times, and by ten times now and then."""
        proof = by_logs([*(2.3 if k % 6 == 0 else 0.05 + 0.001 * k for k in range(faster)), *slower])
        assert proof.gain is gain
        assert proof.low <= proof.value <= proof.high

    @pytest.mark.parametrize(
        "draw",
        [
            lambda source: source.gauss(0, 0.05),
            lambda source: source.choice((-1, 1)) * source.expovariate(4),
            lambda source: max(-3.0, min(3.0, 0.05 * math.tan(math.pi * (source.random() - 0.5)))),
        ],
        ids=["normal", "Laplace", "nearly Cauchy"],
    )
    def test_settings_against_themselves_are_seldom_called_faster(self, draw: Callable[[random.Random], float]) -> None:
        """At any of the analyses."""
        source, claims = random.Random(5), 0
        for _ in range(400):
            logs = [draw(source) for _ in range(max(ANALYSES))]
            claims += any(by_logs(logs[:count], final=count == max(ANALYSES)).gain for count in ANALYSES)
        assert MIN_GAIN > 1
        assert claims <= 0.02 * 400


class TestBesideNeighbours:
    """A neighbour that takes nine tenths of the speed in a third of the blocks, whoever runs then."""

    def proof(self, seed: int, effect: float, *, seen: bool = True) -> Proof:
        draw = random.Random(seed)
        turns = []
        for replicate in range(10):
            luck = [draw.gauss(0, 0.03) for _ in range(2)]
            for _ in range(3):
                hit = [draw.random() < 1 / 3 for _ in range(2)]
                ours, theirs = (
                    math.exp(own + draw.gauss(0, 0.03)) * (0.1 if burst else 1.0)
                    for own, burst in zip(luck, hit, strict=True)
                )
                neighbours = 0.5 * sum(hit) if seen else 0.0
                turns.append(Round(replicate, {"ours": effect * ours, "theirs": theirs}, neighbours))
        return compare(turns, "ours", "theirs")

    def test_the_interval_stays_of_use(self) -> None:
        """Where the neighbour is not seen, its bursts may be the training's own stalls, and count in full."""
        widths = [
            sorted(self.proof(seed, 1.5, seen=seen).half_width for seed in range(60))[30] for seen in (True, False)
        ]
        assert widths[0] < 0.2 < 2 * widths[0] < widths[1]

    def test_gains_are_found_and_none_is_invented(self) -> None:
        assert sum(self.proof(seed, 1.5).gain for seed in range(100)) >= 95
        assert sum(self.proof(seed, 1.0).gain for seed in range(200)) <= 4
        assert sum(self.proof(seed, 1.5).low <= 1.5 <= self.proof(seed, 1.5).high for seed in range(200)) >= 190


def test_no_number_of_replicates_decides_what_gains_nothing() -> None:
    assert to_decide(rounds([[1.0], [1.05], [0.95]]), "ours", "theirs") is None
    assert to_decide([], "ours", "theirs") is None


TABLE = [  # (probability, df, quantile): published tables of Student's t
    (0.75, 1, 1.000),
    (0.975, 1, 12.706),
    (0.975, 2, 4.303),
    (0.9875, 3, 4.177),
    (0.995, 10, 3.169),
    (0.95, 30, 1.697),
    (0.975, 120, 1.980),
]


class TestStudent:
    @pytest.mark.parametrize(("probability", "df", "quantile"), TABLE)
    def test_quantiles_agree_with_the_table(self, probability: float, df: int, quantile: float) -> None:
        assert student_quantile(probability, df) == pytest.approx(quantile, abs=6e-4)
