"""The pure parts of the honesty experiments, and a neighbour that leaves nothing behind."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import subprocess
import sys

import numpy as np
import pytest

from autotune.knobs.knob import LEVELS
from autotune.stats.proof import BASELINE
from autotune.stats.measurement import Block, Measurement
from autotune.stats.outcome import Completed
from benchmarks.grid.file import Grid, Header, Recorded
from benchmarks.grid.plan import HELD, everything, spaces
from benchmarks.honesty import draws, neighbours, record
from benchmarks.honesty.load import LOADS, ROOT, neighbour, phases
from benchmarks.honesty.noise import MODELS, Noise, fitted, simulated
from benchmarks.honesty.optimal import RebasedWorld, rows
from benchmarks.honesty.proofs import NEEDED, RECORDED, Turn, prove, summary, table
from benchmarks.honesty.ranking import agreement
from benchmarks.honesty.ranks import ranks, spearman, spread
from benchmarks.replay.pipeline import Claim, Tuned
from benchmarks.simulation.machines import conv


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("load", LOADS[1:])
def test_a_neighbour_ends_with_its_block(load):
    with neighbour(load) as pid:
        assert alive(pid)
    assert not alive(pid)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_neighbour_ends_with_an_exception(error):
    with pytest.raises(error), neighbour("bursts") as pid:
        raise error
    assert not alive(pid)


def test_the_neighbour_is_in_the_session_of_the_shell_and_niced_where_it_should_be():
    with neighbour("steady") as equal, neighbour("niced") as niced:
        assert os.getsid(equal) == os.getsid(niced) == os.getsid(0)
        assert os.getpriority(os.PRIO_PROCESS, niced) == os.getpriority(os.PRIO_PROCESS, equal) + 19


def test_trials_are_compared_with_plain_training_by_medians_over_rounds():
    def generation(load, *ratios):
        rates = [{"plain": 100.0, "trial": 100.0 * ratio} for ratio in ratios]
        return {"load": load, "others": 0.1, "rates": rates}

    quiet, niced = neighbours.rows(
        [generation("none", 1.0, 1.02, 9.0), generation("none", 0.98, 1.02, 1.02), generation("niced", 0.2)]
    )
    assert quiet["trial/plain"] == quiet["low"] == quiet["high"] == 1.02
    assert (niced["trial/plain"], niced["low"], niced["high"]) == (0.2, 0.0, math.inf)


def test_a_neighbour_dies_with_a_killed_parent():
    code = (
        "import os, signal\n"
        "from benchmarks.honesty.load import neighbour\n"
        "with neighbour('steady') as pid:\n"
        "    print(pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    # The neighbour holds the pipe of its standard error: the reader sees its end only when both are gone.
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, timeout=60)
    assert found.returncode < 0
    assert int(found.stdout) > 0


def test_no_load_is_no_process():
    with neighbour("none") as pid:
        assert pid is None


def test_bursts_are_random_phases_and_steady_is_never_idle():
    bursts = list(itertools.islice(phases("bursts", 60.0, seed=1), 200))
    assert all(0.1 <= length <= 3.0 for phase in bursts for length in phase)
    assert bursts != list(itertools.islice(phases("bursts", 60.0, seed=2), 200))
    assert {idle for _, idle in itertools.islice(phases("steady", 60.0, seed=1), 10)} == {0.0}


def test_drift_goes_up_and_down_once_a_span():
    duties = [busy / (busy + idle) for busy, idle in itertools.islice(phases("drift", 10.0, seed=0), 101)]
    assert duties[0] == pytest.approx(0.0)
    assert duties[50] == pytest.approx(1.0)
    assert duties[100] == pytest.approx(0.0, abs=1e-9)
    assert duties[:51] == sorted(duties[:51])


def equal(count: int, spread: float, seed: int = 0) -> list[list[Turn]]:
    noise = Noise(luck=spread, block=spread)
    rng = np.random.default_rng(seed)
    found: list[list[Turn]] = []
    while len(found) < count:
        found += simulated(noise, dict.fromkeys(draws.NAMES, 1000.0), 2, rng)
    return found[:count]


def test_a_clear_gain_is_claimed_and_covered():
    generations = simulated(Noise(luck=0.01, block=0.01), {"a": 1.0, "b": 1.5}, 2, np.random.default_rng(0))
    answer = prove(generations, {BASELINE: "a", "safe": "b"})
    assert answer.claims == 1
    assert answer.covers(1.5)
    assert not answer.covers(1.0)
    assert answer.generations < NEEDED
    assert prove(generations, {BASELINE: "b", "safe": "a"}).claims == 0


def test_each_level_may_be_claimed():
    rates = {"a": 1.0, "b": 1.5, "c": 2.0, "d": 3.0}
    generations = simulated(Noise(luck=0.01, block=0.01), rates, 2, np.random.default_rng(0))
    roles = dict(zip((BASELINE, *LEVELS), "abcd", strict=True))
    assert prove(generations, roles).claims == 3


def test_a_contender_that_ended_is_no_gain():
    generations = [[Turn({"a": 1.0})] for _ in range(NEEDED)]
    assert prove(generations, {BASELINE: "a", "safe": "b"}).claims == 0


def test_the_summary_counts():
    generations = simulated(Noise(luck=0.01, block=0.01), {"a": 1.0, "b": 1.5}, 2, np.random.default_rng(0))
    gain, loss = (prove(generations, {BASELINE: x, "safe": y}) for x, y in ("ab", "ba"))
    found = summary([gain, loss], 1.5)
    assert (found["proofs"], found["claims"], found["coverage"]) == (2, 0.5, 0.5)


def test_windows_are_consecutive_and_mixtures_change_once():
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


def test_comparisons_are_distinct_and_repeatable():
    recording = {"none": equal(RECORDED, 0.02)}

    def count(levels):
        return len(draws.compared(recording, lambda dice: draws.in_order(recording, "none", dice), 100, levels, 0))

    assert count(LEVELS[:1]) == 12
    assert count(LEVELS) == 24
    assert draws.rows(recording, 20) == draws.rows(recording, 20)


def test_too_short_recordings_give_no_rows():
    assert draws.rows({"none": equal(RECORDED - 1, 0.02)}, 10) == []
    assert [row["load"] for row in draws.rows({"a": equal(RECORDED, 0.02), "b": equal(RECORDED, 0.02)}, 3)][
        -1
    ] == "mixed"


def test_comparisons_that_share_nothing():
    assert [draws.apart(count) for count in (RECORDED - 1, RECORDED, 3 * RECORDED)] == [0, 2, 6]


@pytest.mark.parametrize("name", MODELS)
def test_every_noise_model_gives_whole_generations(name):
    generations = simulated(MODELS[name], {"a": 1.0, "b": 2.0}, 3, np.random.default_rng(1))
    assert len(generations) == NEEDED
    rates = [turn.rates for turns in generations for turn in turns]
    assert all(set(found) == {"a", "b"} and min(found.values()) > 0 for found in rates)


def test_a_fit_finds_the_noise_that_made_a_recording():
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


def small_grid() -> Grid:
    """As recorded on a modelled machine, without noise."""
    machine = conv()
    where = machine.context
    held = {**HELD, "global_batch": (1, 2), "allocator": ("default",)}
    header = Header("2000-01-01", "m", {}, where.inventory, where.task, where.baseline, held, {})
    trials = []
    for at, settings in enumerate(everything(spaces(where, held))):
        rate = machine.rate(settings)
        measured = Measurement((Block(settings.global_batch, settings.global_batch / rate, 1),))
        trials.append(Recorded(0, float(at), settings, Completed(measurement=measured, seconds=1.0)))
    return Grid(header, tuple(trials))


@pytest.mark.parametrize("level", LEVELS)
def test_a_rebased_grid_has_no_gain_left_at_its_level(level):
    grid = small_grid()
    world = RebasedWorld("small", grid, level)
    own = world.spaces[level].context.baseline
    assert world.truth(own) == world.optimum(level)
    assert all(settings in grid.by_settings for space in world.spaces.values() for settings in space.enumerate())


def test_rows_tell_false_claims_and_regressions():
    world = RebasedWorld("small", small_grid(), "max")
    own = world.spaces["safe"].context.baseline
    made = [(True, 1.0), (True, 0.9), (True, 1.2), (False, 1.0)]
    runs = [
        Tuned(1.0, 1, tuple(Claim(level, own, proven, 1.0, ratio, None, 1.0) for level in LEVELS))
        for proven, ratio in made
    ]
    for row in rows(world, runs):
        assert (row["claims"], row["false"], row["regressions"], row["coverage"]) == (3, 2, 1, None)


def test_ranks_and_their_correlation():
    assert ranks([10.0, 30.0, 20.0, 20.0]) == [1.0, 4.0, 2.5, 2.5]
    assert spearman([1, 2, 3, 4], [10, 100, 1000, 10000]) == pytest.approx(1.0)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1.0)
    assert spearman([1, 2, 3, 4, 5], [2, 1, 4, 3, 5]) == pytest.approx(0.8)
    assert math.isnan(spearman([1, 1], [1, 2]))


def test_agreement_is_judged_by_the_long_runs():
    assert agreement([1.0, 3.0, 2.0], [1.0, 1.8, 2.0]) == pytest.approx((0.5, 0.9))


@pytest.mark.parametrize(("count", "total", "found"), [(3, 11, [0, 5, 10]), (5, 3, [0, 1, 2]), (1, 4, [3])])
def test_settings_are_spread_from_slowest_to_best(count, total, found):
    assert spread(count, total) == found


def test_results_are_plain_json_and_of_one_machine(tmp_path):
    path = tmp_path / "results" / "x.json"
    fresh = {"machine": "m", "versions": {"torch": "2"}, "baseline": {}, "generations": []}
    record.save(
        path, fresh | {"generations": [{"load": "none", "rates": [{"a": 1.5}]}, {"load": "steady", "rates": []}]}
    )
    assert json.loads(path.read_text())["generations"][0]["rates"] == [{"a": 1.5}]
    assert len(record.opened(path, fresh)["generations"]) == 2
    with pytest.raises(SystemExit, match="recorded with machine m, here it is other"):
        record.opened(path, fresh | {"machine": "other"})


def test_a_table_has_a_column_for_every_key():
    text = table([{"load": "none", "claims_3_levels": 0.25}, {"load": "mixed", "claims_3_levels": None}])
    assert text.splitlines() == ["| load | claims 3 levels |", "| --- | --- |", "| none | 0.25 |", "| mixed | - |"]
    assert table([]) == ""
