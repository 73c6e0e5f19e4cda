"""The same loop in plain PyTorch and through the runtime: the fixed array of cases, and random ones."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.same_training import covering, outcome, ranks, table
from tests.same_training.case import AXES, Case
from tests.same_training.legal import legal, refused_by_tuner
from tests.same_training.outcome import DIFFERENT

EVERY = 24
"""Of the fixed array, the suite runs every so many; `python -m tests.same_training`, which CI runs, all of them."""
DEAR = ("world", "num_workers", "compile", "interop_threads", "loader")
"""Axes that random cases leave alone or draw from a part of: they run in this process, and many."""


@pytest.mark.torch
@pytest.mark.parametrize("world", ["1", "gloo2", "gloo3", pytest.param("mpi2", marks=pytest.mark.mpi)])
def test_the_runtime_trains_as_plain_pytorch_does(world: str) -> None:
    chosen = covering.cases(world)[::EVERY]
    outcomes = ranks.run(chosen)
    assert len(outcomes) == len(chosen)
    different = sum(outcome.verdict == DIFFERENT for outcome in outcomes)
    assert not different, f"{different} of {len(outcomes)} are different:\n{table.differences(outcomes)}"


def cases() -> st.SearchStrategy[Case]:
    """Legal cases of one process without loader workers."""
    values = {axis: st.sampled_from(list(odds)) for axis, odds in AXES.items() if axis not in DEAR}
    loaders = st.sampled_from([name for name, odds in AXES["loader"].items() if odds >= 1])
    interop = st.just(torch.get_num_interop_threads())
    drawn = st.builds(Case, **values, loader=loaders, interop_threads=interop).map(legal)
    return drawn.filter(lambda case: refused_by_tuner(case) is None)


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(case=cases())
def test_random_cases(case: Case) -> None:
    judged = outcome.run(case)
    assert judged.verdict != DIFFERENT, table.differences([judged])
