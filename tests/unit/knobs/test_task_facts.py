from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from autotune.decoding import decoded
from autotune.knobs.task_facts import TaskFacts
from benchmarks.simulation.simulator import context, inventory


@pytest.mark.parametrize(("samples", "refused"), [(None, None), (10**9, "the loss is no mean over samples")])
def test_any_facts_survive_json(samples: int | None, refused: str | None) -> None:
    facts = replace(
        context(inventory(), 64).task,
        samples=samples,
        current={"batch_size": 64, "persistent_workers": True, "precision": "bf16", "prefetch_factor": None},
        optimizer_impls=("default", "fused"),
        why_not_several=refused,
        warnings=("BatchNorm", "é 显"),
    )
    assert decoded(TaskFacts, json.loads(json.dumps(asdict(facts)))) == facts
