"""What crosses the process border comes back as it was."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from autotune.knobs.settings import Settings
from autotune.stats.measurement import Block, Measurement
from autotune.trial.spec import TrialReport, TrialRequest, TrialSpec

SPEC = TrialSpec(settings=Settings(processes=4), resident=True)
MEASURED = Measurement((Block(640, 0.25, 10, core_latency=2e-5),), warmup_seconds=0.5)


@pytest.mark.parametrize(
    "sent",
    [
        SPEC,
        TrialRequest(task="m.py", folder="t1", origin="/u", seed=3),
        TrialRequest(task="m", folder="t", origin="/u", seed=3, spec=SPEC),
        TrialReport(measurement=MEASURED, losses=(1.0, 0.5), not_applied=(("threads", "why"),), notes=("x",)),
        TrialReport(error="no", error_type="ValueError", traceback="..."),
    ],
)
def test_a_trip_through_json(sent: Any) -> None:
    assert type(sent).from_dict(json.loads(json.dumps(asdict(sent)))) == sent


def test_a_task_is_described_by_one_process() -> None:
    described = TrialRequest(task="m.py", folder="t1", origin="/u", seed=0)
    assert described.world_size == 1
