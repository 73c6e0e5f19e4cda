"""The pure parts of the honesty experiments, and the files that they write."""

from __future__ import annotations

import itertools
import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.knobs.knob import LEVELS
from autotune.stats.proof import BASELINE
from benchmarks import stamp
from benchmarks.honesty import draws, neighbours
from benchmarks.honesty.noise import Noise, fitted, simulated
from benchmarks.honesty.proofs import NEEDED, RECORDED, Turn, prove, summary


def test_trials_are_compared_with_plain_training_by_medians_over_rounds() -> None:
    def generation(load: str, *ratios: float) -> dict[str, Any]:
        rates = [{"plain": 100.0, "trial": 100.0 * ratio} for ratio in ratios]
        return {"load": load, "others": 0.1, "rates": rates}

    quiet, niced = neighbours.rows(
        [generation("none", 1.0, 1.02, 9.0), generation("none", 0.98, 1.02, 1.02), generation("niced", 0.2)]
    )
    assert quiet["trial/plain"] == quiet["low"] == quiet["high"] == 1.02
    assert (niced["trial/plain"], niced["low"], niced["high"]) == (0.2, 0.0, math.inf)


def equal(count: int, spread: float, seed: int = 0) -> list[list[Turn]]:
    noise = Noise(luck=spread, block=spread)
    rng = np.random.default_rng(seed)
    found: list[list[Turn]] = []
    while len(found) < count:
        found += simulated(noise, dict.fromkeys(draws.NAMES, 1000.0), 2, rng)
    return found[:count]


def test_a_clear_gain_is_claimed_and_covered() -> None:
    generations = simulated(Noise(luck=0.01, block=0.01), {"a": 1.0, "b": 1.5}, 2, np.random.default_rng(0))
    answer = prove(generations, {BASELINE: "a", "safe": "b"})
    assert answer.claims == 1
    assert answer.covers(1.5)
    assert not answer.covers(1.0)
    assert answer.generations < NEEDED
    assert prove(generations, {BASELINE: "b", "safe": "a"}).claims == 0


def test_each_level_may_be_claimed() -> None:
    rates = {"a": 1.0, "b": 1.5, "c": 2.0, "d": 3.0}
    generations = simulated(Noise(luck=0.01, block=0.01), rates, 2, np.random.default_rng(0))
    roles = dict(zip((BASELINE, *LEVELS), "abcd", strict=True))
    assert prove(generations, roles).claims == 3


def test_a_contender_that_ended_is_no_gain() -> None:
    generations = [[Turn({"a": 1.0})] for _ in range(NEEDED)]
    assert prove(generations, {BASELINE: "a", "safe": "b"}).claims == 0


def test_the_summary_counts() -> None:
    generations = simulated(Noise(luck=0.01, block=0.01), {"a": 1.0, "b": 1.5}, 2, np.random.default_rng(0))
    gain, loss = (prove(generations, {BASELINE: x, "safe": y}) for x, y in ("ab", "ba"))
    found = summary([gain, loss], 1.5)
    assert (found["proofs"], found["claims"], found["coverage"]) == (2, 0.5, 0.5)


def test_windows_are_consecutive_and_mixtures_change_once() -> None:
    recording = {"none": equal(20, 0.02), "steady": equal(RECORDED + 3, 0.02), "drift": equal(2, 0.02)}
    dice = random.Random(0)
    for _ in range(50):
        picked = draws.in_order(recording, "none", dice)
        assert [position - picked[0][1] for _, position in picked] == list(range(RECORDED))
        assert picked[-1][1] < 20
        loads = [load for load, _ in draws.mixed(recording, dice)]
        assert set(loads) == {"none", "steady"}
        assert sum(a != b for a, b in itertools.pairwise(loads)) == 1
        assert len(set(draws.any_order(recording, "steady", dice))) == RECORDED


def test_a_fit_finds_the_noise_that_made_a_recording() -> None:
    noise = Noise(luck=0.06, block=0.03, wander=0.2)
    rng = np.random.default_rng(0)
    generations = [g for _ in range(60) for g in simulated(noise, dict.fromkeys("abcd", 1.0), 4, rng)]
    found = fitted(generations)
    assert found.luck == pytest.approx(0.06, rel=0.1)
    assert found.wander == pytest.approx(0.2, rel=0.2)
    calm = fitted(
        [g for _ in range(60) for g in simulated(Noise(0.06, block=0.03), dict.fromkeys("abcd", 1.0), 4, rng)]
    )
    assert (calm.luck, calm.block) == pytest.approx((0.06, 0.03), rel=0.1)
    assert calm.wander < 0.05
    assert fitted([[Turn({"a": 1.0, "b": 1.0}), Turn({"a": 1.0})]]) is None


def test_results_are_plain_json_and_of_one_machine(tmp_path: Path) -> None:
    path = tmp_path / "results" / "x.json"
    fresh = {"machine": "m", "versions": {"torch": "2"}, "baseline": {}, "generations": []}
    stamp.save(
        path, fresh | {"generations": [{"load": "none", "rates": [{"a": 1.5}]}, {"load": "steady", "rates": []}]}
    )
    assert json.loads(path.read_text())["generations"][0]["rates"] == [{"a": 1.5}]
    assert len(stamp.opened(path, fresh)["generations"]) == 2
    with pytest.raises(SystemExit, match="recorded with machine m, here it is other"):
        stamp.opened(path, fresh | {"machine": "other"})
