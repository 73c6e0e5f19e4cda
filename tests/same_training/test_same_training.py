"""The same loop in plain PyTorch and through the runtime: a part of the fixed array of cases."""

import pytest

from tests.same_training import covering, ranks, table
from tests.same_training.outcome import DIFFERENT

EVERY = 24
"""Of the fixed array, the suite runs every so many; `python -m tests.same_training`, which CI runs, all of them."""


@pytest.mark.torch
@pytest.mark.parametrize("world", ["1", "gloo2", "gloo3", pytest.param("mpi2", marks=pytest.mark.mpi)])
def test_the_runtime_trains_as_plain_pytorch_does(world: str) -> None:
    chosen = covering.cases(world)[::EVERY]
    outcomes = ranks.run(chosen)
    assert len(outcomes) == len(chosen)
    different = sum(outcome.verdict == DIFFERENT for outcome in outcomes)
    assert not different, f"{different} of {len(outcomes)} are different:\n{table.differences(outcomes)}"
