"""Plain data of a trial, read."""

from __future__ import annotations

import json

from autotune.diagnosis.inspection import Inspection, Operator, SlowOperator

from .records import BUSY, SIZES

FOUND = {
    "step_seconds": 0.01,
    "update_seconds": 0.001,
    "exchange_seconds": None,
    "copy_seconds": None,
    "call_seconds": 5e-6,
    "operators": {
        "aten::mm": {"calls": 2, "flops": 1e9, "bytes": 1e6},
        "aten::t": {"calls": 1, "flops": 0, "bytes": 0},
    },
    "seconds": {"aten::mm": 0.002, "aten::linear": 0.1},
    "slowest": [{"name": "aten::mm", "shapes": [[64, 32], [32, 8]], "calls": 2.0, "seconds": 0.002}],
    "loader": vars(BUSY),
    "batches": [[1.0, 0.5]],
    **vars(SIZES),
}


def test_survives_json() -> None:
    found = Inspection.from_dict(json.loads(json.dumps(FOUND)))
    assert found.operators == (Operator("aten::mm", 2, 1e9, 1e6, 0.002), Operator("aten::t", 1, 0, 0, 0.0))
    assert found.slowest == (SlowOperator("aten::mm", ((64, 32), (32, 8)), 2.0, 0.002),)
    assert (found.loader, found.sizes, found.batches) == (BUSY, SIZES, ((1.0, 0.5),))


def test_a_script_may_have_no_loader() -> None:
    assert Inspection.from_dict(FOUND | {"loader": None}).loader is None


def test_what_is_not_known_of_the_peak_is_other() -> None:
    assert SIZES.other == 10_000 - 100 - 100 - 200 - 3200 - 640
