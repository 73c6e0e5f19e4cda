"""What crosses the process border comes back as it was."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from autotune.knobs.settings import Settings
from autotune.stats.measurement import Block, Measurement
from autotune.trial.spec import Rendezvous, TrialReport, TrialRequest, TrialSpec

SPEC = TrialSpec(settings=Settings(processes=4), resident=True)
MEASURED = Measurement((Block(640, 0.25, 10, core_latency=2e-5),), warmup_seconds=0.5)


@pytest.mark.parametrize(
    "sent",
    [
        SPEC,
        Rendezvous("10.0.0.1", (5, 6), 2, 1, "eth0"),
        TrialRequest(task="m.py", folder="t1", origin="/u", seed=3),
        TrialRequest(task="m", folder="t", origin="/u", seed=3, spec=SPEC, rendezvous=Rendezvous("::1", (5, 6), 2)),
        TrialReport(measurement=MEASURED, losses=(1.0, 0.5), not_applied=(("threads", "why"),), notes=("x",)),
        TrialReport(error="no", error_type="ValueError", traceback="..."),
    ],
)
def test_a_trip_through_json(sent: Any) -> None:
    assert type(sent).from_dict(json.loads(json.dumps(asdict(sent)))) == sent


def test_ranks_are_shared_out_in_the_order_of_machines() -> None:
    ranks = [[*Rendezvous("h", (1, 2), 3, node).ranks(6)] for node in range(3)]
    assert ranks == [[0, 1], [2, 3], [4, 5]]


def test_a_task_is_described_by_one_process() -> None:
    described = TrialRequest(task="m.py", folder="t1", origin="/u", seed=0)
    assert described.world_size == 1
