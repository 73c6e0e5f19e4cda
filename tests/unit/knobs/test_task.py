from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.decoding import decoded
from autotune.knobs.table import KNOB_NAMES
from autotune.knobs.task import TaskFacts, unchecked
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


SHARED = replace(FACTS, why_not_several=None)
FIRST = {"event": "facts", "facts": SHARED.as_dict()}
FAILED = unchecked("the step failed, or takes too long")


@pytest.mark.parametrize(
    ("later", "refused", "notes"),
    [
        ([{"event": "step_facts", "why_not_several": None, "note": None}], None, ()),
        ([{"event": "step_facts", "why_not_several": "a sum", "note": None}], "a sum", ()),
        ([{"event": "step_facts", "why_not_several": None, "note": "random"}], None, ("random",)),
        ([], None, (FAILED,)),
    ],
)
def test_what_the_step_tells_is_added_if_it_came(
    later: list[dict[str, Any]], refused: str | None, notes: tuple[str, ...]
) -> None:
    facts = TaskFacts.from_events([FIRST, *later])
    assert facts == replace(SHARED, why_not_several=refused, warnings=(*SHARED.warnings, *notes))
