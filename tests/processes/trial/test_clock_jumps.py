"""What a suspend or a clock that jumps has hit is measured again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from autotune.knobs.settings import Settings
from autotune.stats.measurement import Block, Measurement
from autotune.trial.messages import TrialReport, TrialSpec
from autotune.trial.parent import runner
from autotune.trial.parent.judge import TrialEnd
from autotune.trial.parent.runner import Runner
from autotune.trial.parent.running_trial import Timeouts
from autotune.trial.parent.trial_bench import TrialBench

OWN = Settings(batch_size=64)
HIT, GOOD = Block(640, 60.2, 10), Block(640, 0.2, 10)


def report(block: Block) -> TrialReport:
    return TrialReport(measurement=Measurement((block,), 0.3, 3), losses=(1.0,), finite=True)


class Jumping(Runner):
    """A runner whose first block or trial is hit: the tuner notices a pause, or only the trial's clock jumps."""

    def __init__(self, notices: bool) -> None:
        super().__init__(SimpleNamespace())  # type: ignore[arg-type]
        self.notices, self.made = notices, 0

    def taken(self, *_: Any) -> Block:
        self.made += 1
        if self.made > 1:
            return GOOD
        self.loop.paused += 60.0 if self.notices else 0.0
        return HIT

    def start(self, *_: Any) -> Any:
        return None

    def stop(self, _: Any) -> None:
        pass

    def _wait(self, *_: Any) -> None:
        pass

    def end(self, _: Any) -> TrialEnd:
        return TrialEnd(report(self.taken()), (0,), 0, seconds=1.0)


@pytest.fixture(params=[True, False], ids=["noticed", "its own clock"])
def jumping(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Jumping:
    monkeypatch.setattr(runner, "_block", Jumping.taken)
    return Jumping(request.param)


def test_a_block_is_measured_again(jumping: Jumping) -> None:
    assert jumping.block(None, 0.15) == GOOD  # type: ignore[arg-type]
    assert jumping.made == 2


def test_a_trial_says_so(jumping: Jumping) -> None:
    spec = TrialSpec(settings=OWN)
    assert [jumping.run(spec, Timeouts()).paused for _ in range(2)] == [True, False]


def test_a_trial_is_measured_again(jumping: Jumping) -> None:
    outcome: Any = TrialBench(jumping, OWN).measure(OWN, 0.0, float("inf"))
    assert outcome.measurement.blocks == (GOOD,)


def test_past_the_deadline_nothing_is_measured_again(jumping: Jumping) -> None:
    outcome: Any = TrialBench(jumping, OWN).measure(OWN, 0.0, 0.0)
    assert outcome.measurement.blocks == (HIT,)
