"""Grids: which settings, in which order, the file they are kept in, and the whole tuner replayed on such a world."""

import json
from pathlib import Path

import pytest

from autotune.knobs.level import LEVELS
from autotune.knobs.settings import Settings
from autotune.stats.measurement import Block, Measurement
from autotune.stats.outcome import Completed, OutOfMemory
from benchmarks.grid import file, plan
from benchmarks.grid.file import Grid, Header, Recorded, Turns
from benchmarks.replay.pipeline import tune
from benchmarks.replay.world import ModelWorld
from tests.doubles.simulation import machines

CONTEXT = machines.mlp().context
OWN = CONTEXT.baseline
HEADER = Header("2026-01-01", "some-machine", {"torch": "2.9"}, CONTEXT.inventory, CONTEXT.task, OWN, {})
OTHER = OWN.but(optimizer_impl="fused")


def trial(settings: Settings, rate: float, number: int = 0) -> Recorded:
    blocks = (Block(int(rate * 100), 100.0, 100, 0.25),)
    measurement = Measurement(blocks, warmup_seconds=0.4, warmup_steps=9, load_share=0.25)
    return Recorded(number, 1.5, settings, Completed(measurement=measurement, seconds=1.2, start_seconds=0.1))


class TestFile:
    def test_lines_come_back(self, tmp_path: Path) -> None:
        failed = Recorded(1, 2.0, OTHER, OutOfMemory(reason="host memory ran out"))
        trials = (trial(OWN, 100.0), trial(OTHER, 130.0, 1), failed)
        turns = Turns("amp", 2, (OWN, OTHER), ((100.0, 130.0), (90.0, 0.0)))
        path = tmp_path / "task.jsonl"
        lines = [HEADER.as_dict(), *(file.encode(t, OWN) for t in trials), file.encode_turns(turns, OWN)]
        path.write_text("\n".join(json.dumps(line) for line in lines), "utf-8")
        grid = file.load(path)
        assert grid.header == HEADER
        assert grid.trials == trials
        assert grid.turns == (turns,)
        assert set(grid.spaces) == set(LEVELS)

    def test_one_burst_does_not_move_the_truth(self) -> None:
        grid = Grid(HEADER, tuple(trial(OWN, rate) for rate in (100.0, 101.0, 3.0)))
        assert grid.rates[OWN] == pytest.approx(100.0)


@pytest.mark.parametrize("path", sorted(file.FOLDER.glob("*.jsonl")), ids=lambda path: path.stem)
class TestRecordedGrids:
    def test_hold_enough_and_name_no_machine(self, path: Path) -> None:
        grid = file.load(path)
        assert len(grid.by_settings) >= 150
        header = path.read_text("utf-8").splitlines()[0]
        assert not any(word in header for word in ("/home", "/root", "/work", "/usr", "hostname"))

    def test_hold_every_setting_of_their_spaces(self, path: Path) -> None:
        grid = file.load(path)
        assert set(plan.everything(grid.spaces)) <= set(grid.by_settings)
        for level, space in grid.spaces.items():
            best, rate = grid.optimum(level)
            assert best in space
            assert rate >= 0.9 * grid.rates[grid.header.baseline]


def test_the_whole_tuner_ends_within_its_budget_and_says_the_truth() -> None:
    for seed in range(3):
        tuned = tune(ModelWorld(machines.conv()), seed, 60.0)
        assert tuned.seconds <= 63.0, "a real bench cuts the last trial short; this one does not"
        assert [claim.level for claim in tuned.claims] == list(LEVELS)
        assert all(claim.ratio > 0.99 for claim in tuned.claims), "never slower than the user's own"
