from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from autotune.decoding import decoded
from autotune.knobs.settings import KNOB_NAMES
from autotune.knobs.task import TaskFacts
from benchmarks.simulation.simulator import context, inventory

FACTS = replace(
    context(inventory(), 64).task,
    current={"batch_size": 64, "persistent_workers": True},
    why_not_several="the loss is no mean over samples",
    warnings=("BatchNorm", "shapes vary"),
)


@given(
    samples=st.none() | st.integers(0, 10**9),
    current=st.dictionaries(st.sampled_from(KNOB_NAMES), st.booleans() | st.integers() | st.text() | st.none()),
    impls=st.lists(st.sampled_from(["default", "foreach", "fused"]), unique=True).map(tuple),
    refused=st.none() | st.text(),
    warnings=st.lists(st.text()).map(tuple),
)
def test_any_facts_survive_json(
    samples: int | None, current: dict[str, Any], impls: tuple[str, ...], refused: str | None, warnings: tuple[str, ...]
) -> None:
    facts = replace(
        FACTS, samples=samples, current=current, optimizer_impls=impls, why_not_several=refused, warnings=warnings
    )
    assert decoded(TaskFacts, json.loads(json.dumps(facts.as_dict()))) == facts
