"""What ranks must show before several processes are offered."""

import re
from dataclasses import replace
from typing import Any

import pytest

from autotune.trial.parent.several_processes import RankEvidence, why_not_shared

ALONE = RankEvidence(
    rank=0,
    world=1,
    backend="",
    samples=32,
    batches=("a", "b", "c"),
    epoch=32,
    batches_per_step=1.0,
    weights="w",
    changed=True,
    gradient=0.5,
    options=({"lr": 0.001, "betas": [0.9, 0.999]},),
    schedules=(3,),
)


def ranks(both: dict[str, Any], second: dict[str, Any]) -> list[RankEvidence]:
    """Two ranks that share the work of `ALONE`, but for what ``both`` or the ``second`` show."""
    first = replace(ALONE, **({"world": 2, "backend": "gloo", "samples": 16} | both))
    return [first, replace(first, **({"rank": 1, "batches": ("d", "e", "f")} | second))]


def test_ranks_that_share_the_work_of_one_process() -> None:
    assert why_not_shared(ALONE, ranks({}, {})) is None
    assert why_not_shared(ALONE, ranks({"epoch": 33, "gradient": 0.6}, {})) is None, "the last batch may be ragged"


@pytest.mark.parametrize(
    ("both", "second", "words"),
    [
        ({"world": 1}, {}, "makes no process group"),
        ({"world": 1, "advice": "ask it"}, {}, r"\(ask it\)"),
        ({"changed": False}, {}, "no weight changes"),
        ({}, {"weights": "other"}, "weights of the ranks differ"),
        ({"backend": "mpi"}, {}, "over mpi"),
        ({}, {"batches": ("a", "b", "c")}, "same batches"),
        ({}, {"batches": ("b", "c", "d")}, "same batches"),
        ({"advice": "ask it"}, {"batches": ("a", "b", "c")}, r"same batches \(ask it\)"),
        ({"samples": 32}, {}, "batches of 32 samples, but its share of 32 is 16"),
        ({}, {"samples": 8}, "batches of 8 samples"),
        ({"epoch": 64}, {}, "an epoch of a rank has 64 batches, and that of one process has 32"),
        ({"epoch": None}, {}, "an epoch"),
        ({"batches_per_step": 2.0}, {}, "takes 2 batches of a rank, and 1 of one process"),
        ({"schedules": (6,)}, {}, "schedulers"),
        ({"options": ({"lr": 0.002, "betas": [0.9, 0.999]},)}, {}, "lr 0.002, not 0.001"),
        ({"options": ()}, {}, "another number of parameter groups"),
        ({"gradient": 1.0}, {}, "2 times as large"),
        ({"gradient": 0.25}, {}, "0.5 times as large"),
    ],
)
def test_ranks_that_do_not(both: dict[str, Any], second: dict[str, Any], words: str) -> None:
    reason = why_not_shared(ALONE, ranks(both, second))
    assert reason.startswith("two processes started as torchrun does: ")
    assert re.search(words, reason)
