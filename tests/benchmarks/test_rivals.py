"""The pure parts of the comparison with other methods: histories, ratios, spaces, command lines, the table."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from autotune.knobs.settings import Settings
from autotune.knobs.space import Space, build
from benchmarks.rivals import contest, launcher_sweep, measuring, optuna_tpe
from benchmarks.rivals.history import Choice, Method, Point, Trial, best_so_far, ratio, thinned, time_to_quality
from benchmarks.simulation.simulator import GIB, context, inventory

TODAY = Choice(Settings(threads=2, batch_size=64))
BETTER = Choice(TODAY.settings.but(num_workers=1))
BEST = Choice(TODAY.settings.but(precision="bf16"))


def space(level: str = "amp", threads: int = 4) -> Space:
    return build(context(inventory(threads, threads, memory=64 * GIB), 64, convolutions=True), level)


def test_best_so_far_starts_with_today_and_only_rises():
    rates = ((5.0, TODAY, 100.0), (10.0, BETTER, 120.0), (15.0, BEST, None), (20.0, TODAY, 110.0), (25.0, BEST, 130.0))
    trials = [Trial(*each) for each in rates]
    assert best_so_far(TODAY, trials) == (Point(0.0, TODAY), Point(10.0, BETTER), Point(25.0, BEST))


def test_a_first_trial_elsewhere_is_better_than_nothing_measured():
    assert best_so_far(TODAY, [Trial(7.0, BETTER, 1.0)])[-1] == Point(7.0, BETTER)


def test_what_a_method_recommends_at_a_time():
    method = Method("rival", "amp", (Point(0.0, TODAY), Point(10.0, BETTER), Point(90.0, BEST)))
    assert [method.at(seconds).choice for seconds in (0.0, 9.9, 10.0, 75.0, 1000.0)] == [
        TODAY,
        TODAY,
        BETTER,
        BETTER,
        BEST,
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 9, 10, 99])
def test_thinning_keeps_the_last(count):
    timeline = [Point(float(k), TODAY) for k in range(10)]
    kept = thinned(timeline, count)
    assert kept[-1] == timeline[-1]
    assert len(kept) == min(count, 10)
    assert list(kept) == sorted(set(kept), key=lambda point: point.seconds)


def test_points_at_the_budget_are_measured_too():
    method = Method("rival", "amp", tuple(Point(float(k), TODAY) for k in range(50)))
    (points,) = contest.recommended([method], 7.5).values()
    assert Point(7.0, TODAY) in points
    assert len(points) <= contest.CHECKPOINTS + 1


def test_ratio_is_paired_by_round():
    rounds = [{TODAY: 100.0, BEST: 200.0}, {TODAY: 10.0, BEST: 20.0}, {TODAY: 50.0}]
    found = ratio(rounds, BEST, TODAY)
    assert found is not None
    assert (found.value, found.low, found.high, found.rounds) == pytest.approx((2.0, 2.0, 2.0, 2))


def test_ratio_has_students_interval():
    found = ratio([{TODAY: 1.0, BEST: math.exp(x)} for x in (0.0, 0.1, 0.2)], BEST, TODAY)
    assert found is not None
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((0.1 - half, 0.1 + half), abs=1e-5)


def test_one_round_proves_nothing():
    found = ratio([{TODAY: 1.0, BEST: 2.0}], BEST, TODAY)
    assert found is not None
    assert found.as_dict() == {"value": pytest.approx(2.0), "low": 0.0, "high": None, "rounds": 1}


def test_no_common_round_is_no_ratio():
    assert ratio([{TODAY: 1.0}, {BEST: 1.0}], BEST, TODAY) is None


def test_time_to_quality_is_the_first_time_at_98_percent():
    timeline = (Point(0.0, TODAY), Point(30.0, BETTER), Point(60.0, BEST))
    assert time_to_quality(timeline, BEST, [{TODAY: 50.0, BETTER: 97.0, BEST: 100.0}]) == 60.0
    assert time_to_quality(timeline, BEST, [{TODAY: 50.0, BETTER: 98.5, BEST: 100.0}]) == 30.0
    assert time_to_quality(timeline[:2], BEST, [{TODAY: 50.0, BETTER: 97.0, BEST: 100.0}]) is None


def ours(level: str, choice: Choice) -> Method:
    return Method(f"autotune {level}", level, (Point(0.0, TODAY), Point(70.0, choice)))


def test_rows_compare_at_the_same_level():
    rival = Method("rival", "amp", (Point(0.0, TODAY), Point(40.0, BETTER), Point(300.0, BEST)))
    methods = [ours("safe", BETTER), ours("amp", BEST), rival]
    rounds = [{TODAY: 100.0, BETTER: 150.0, BEST: 300.0}] * 3
    safe, amp, row = contest.rows(methods, TODAY, 75.0, rounds)
    assert (safe.gain.value, amp.gain.value, row.gain.value) == pytest.approx((1.5, 3.0, 1.5))
    assert row.ahead.value == pytest.approx(2.0)
    assert safe.ahead is None
    text = contest.table([safe, amp, row], TODAY)
    assert len({len(line) for line in text.splitlines()}) == 1
    assert "| rival         | amp" in text
    assert "num_workers 1" in text


def test_how_much_sooner():
    rival = Method("rival", "amp", (Point(0.0, TODAY), Point(700.0, BEST)), budget=750.0)
    goal = ours("amp", BEST)
    reached = contest.sooner(rival, rival.timeline, goal, [{TODAY: 1.0, BEST: 2.0}])
    assert reached.endswith("was reached after 700 s (10.0 times as long)")
    nothing = contest.sooner(rival, rival.timeline, ours("amp", TODAY), [{TODAY: 1.0, BEST: 2.0}])
    assert nothing.endswith("nothing to reach")
    missed = contest.sooner(rival, rival.timeline[:1], goal, [{TODAY: 1.0, BEST: 2.0}])
    assert missed.endswith("was not reached within 750 s (over 10.7 times as long)")


class Pick:
    """A trial that draws the same position of every dimension, or what it was told."""

    def __init__(self, position: int = 0, told: dict[str, int] | None = None) -> None:
        self.position, self.told = position, told or {}

    def suggest_int(self, name: str, low: int, high: int) -> int:
        return self.told.get(name, min(high, low + self.position))

    def suggest_categorical(self, name: str, choices: tuple[int, ...]) -> int:
        return self.told.get(name, choices[min(len(choices) - 1, self.position)])


@pytest.mark.parametrize("level", ["safe", "amp", "max"])
def test_optuna_is_offered_the_same_values_and_starts_from_today(level):
    where = space(level)
    offered = optuna_tpe.dimensions(where)
    today = where.context.baseline
    assert optuna_tpe.suggested(Pick(99, optuna_tpe.positions(today, offered)), offered, today) == today
    for position in range(4):
        found = optuna_tpe.suggested(Pick(position), offered, today)
        assert all(getattr(found, name) in where.values[name] for name in launcher_sweep.FLAGS)
        assert found.global_batch in where.global_batches
        assert found.persistent_workers == today.persistent_workers


class Measured:
    """A search whose rates come from a formula."""

    def __init__(self) -> None:
        self.seen: list[Settings] = []
        self.plain: list[Settings] = []

    def measure(self, settings: Settings, launcher: str = "") -> float:
        (self.plain if launcher else self.seen).append(settings)
        return settings.processes * (2.0 if settings.precision == "bf16" else 1.0) - settings.num_workers


@pytest.mark.parametrize("level", ["safe", "amp"])
def test_the_sweep_keeps_what_is_faster_and_repeats_nothing(level):
    search, where = Measured(), space(level)
    launcher_sweep.sweep(where, search)
    assert search.plain == search.seen[:1] == [where.context.baseline]
    assert len(search.seen) == len(set(search.seen))
    assert all(each in where for each in search.seen)
    best = max(search.seen, key=Measured().measure)
    assert (best.processes, best.precision) == (4, "fp32" if level == "safe" else "bf16")


def test_the_sweep_changes_the_batch_only_at_max():
    batches = {}
    for level in ("amp", "max"):
        search = Measured()
        launcher_sweep.sweep(space(level), search)
        batches[level] = {each.global_batch for each in search.seen}
    assert batches["amp"] == {64}
    assert len(batches["max"]) > 1


def test_command_lines_of_launchers():
    two = TODAY.settings.but(processes=2, threads=3).as_dict()
    plain = measuring.commands(two, "plain", Path("folder"))
    assert [own["RANK"] + own["LOCAL_RANK"] + own["WORLD_SIZE"] for _, own in plain] == ["002", "112"]
    ((line, own),) = measuring.commands({**two, "backend": "mpi"}, "plain", Path("folder"))
    assert line[1:5] == ["-launcher", "fork", "-n", "2"]
    assert line[line.index("autotune.runtime.entry") + 1] == "mpi"
    ((line, own),) = measuring.commands(two, "run_cpu", Path("folder"))
    assert own == {}
    assert line.index("torch.distributed.run") < line.index("torch.backends.xeon.run_cpu")
    assert line[line.index("--ncores-per-instance") + 1] == "6"
    assert "torch.distributed.run" not in measuring.commands(TODAY.settings.as_dict(), "run_cpu", Path("folder"))[0][0]


def test_a_failing_process_is_told_by_its_last_words_without_folders():
    with pytest.raises(measuring.Failed, match=r"exit code 1: no such file: x\.py"):
        measuring.run([(["python3", "-c", "raise SystemExit('no such file: /some/folder/x.py')"], {})], {}, 30.0)


def test_time_up_is_no_result():
    with pytest.raises(measuring.TimeUp):
        measuring.run([(["sleep", "30"], {})], {"PATH": "/bin:/usr/bin"}, 0.05)


def test_a_history_is_plain_data():
    method = Method("rival", "amp", (Point(0.0, TODAY),), (Trial(1.0, BEST, None, "crashed"),))
    found = json.loads(json.dumps(method.as_dict(TODAY.settings)))
    assert found["timeline"] == [{"seconds": 0.0, "changes": {}, "launcher": "plain"}]
    (trial,) = found["trials"]
    assert (trial["changes"], trial["rate"], trial["note"]) == ({"precision": "bf16"}, None, "crashed")
