"""The same loop in plain PyTorch and through the runtime, for a part of the fixed array; and the harness itself."""

import pytest
from torch import Tensor

from tests.same_training import covering, outcome, ranks, table
from tests.same_training.case import AXES, WORLDS, Case, parsed
from tests.same_training.legal import legal, refused_by_tuner
from tests.same_training.outcome import DIFFERENT, EQUAL
from tests.same_training.record import Record
from tests.same_training.sides import PlainSide

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


# The harness: gradients that are 1 % too large, and ranks that come apart, are found ----------------------------------


class Plain(PlainSide):
    """The side under test is plain PyTorch too."""

    def __init__(self, _case: Case) -> None:
        super().__init__()


class ScalesGradients(Plain):
    """Gradients are 1 % too large."""

    def backward(self, loss: Tensor) -> None:
        super().backward(loss * 1.01)


@pytest.mark.parametrize(("optimizer_impl", "words"), [("default", "losses"), ("foreach", "off by")])
def test_gradients_that_are_a_little_wrong_are_found_where_sums_may_be_reordered_too(optimizer_impl, words) -> None:
    case = Case(optimizer_impl=optimizer_impl)
    tested = outcome.attempt(case, ScalesGradients)
    assert isinstance(tested, Record)
    found = outcome.judge(case, [tested], outcome.reference(case, tested))
    assert found.verdict == DIFFERENT
    assert words in found.reasons[0]


@pytest.mark.parametrize("apart", ["weights", "steps"])
def test_ranks_that_come_apart_are_found(apart: str) -> None:
    case = Case(world="gloo2")
    first, second, plain = (outcome.attempt(case, Plain) for _ in range(3))
    assert isinstance(second, Record)
    assert outcome.judge(case, [first, second], plain).verdict == EQUAL
    if apart == "weights":
        second.values["file.networks.main.0.weight"][0, 0] += 1e-6
    else:
        second.orders["train"].pop()
    found = outcome.judge(case, [first, second], plain)
    assert found.verdict == DIFFERENT
    assert "rank 1" in found.reasons[0]


def test_more_than_two_thousand_cases_hold_every_pair() -> None:
    cases = [case for world in WORLDS for case in covering.cases(world)]
    assert len({case for case in cases if refused_by_tuner(case) is None}) >= 2000
    for axis, values in AXES.items():
        assert {getattr(case, axis) for case in cases} == set(values)
    met, possible = covering.pairs_met()
    assert met >= 0.99 * possible


def test_a_case_is_printed_as_what_reproduces_it() -> None:
    for world in WORLDS:
        for case in covering.cases(world)[:50]:
            assert parsed(repr(case)) == case
            assert legal(case) == case
    with pytest.raises(ValueError, match="is no case"):
        parsed("1")


def test_the_page_tells_of_the_cases_that_are_run() -> None:
    page = table.PAGE.read_text("utf-8")
    count = sum(len(covering.cases(world)) for world in WORLDS)
    assert f"{count} combinations in" in page
    assert ", 0 different" in page


@pytest.mark.parametrize(("times", "end"), [(1, "1: Timeout (0:01:00)!"), (2, "1: Timeout (0:01:00)!"), (0, "-11: ")])
def test_a_case_that_hangs_is_run_once_more_where_a_fork_may_hang(times, end, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that crashes is not."""
    case = Case(world="gloo2")
    hung, well = ranks._judged(case, [], f"rank 1 ended with {end}"), outcome.Outcome(case, EQUAL)
    assert hung.verdict == DIFFERENT
    assert end in hung.reasons[0]
    answers = iter([[hung]] * max(times, 1) + [[well]] * 2)
    monkeypatch.setattr(ranks, "FORK_HANGS", True)
    monkeypatch.setattr(ranks, "_in_folder", lambda cases, _at_once: next(answers) if cases else [])
    assert ranks.run([case]) == [well if times == 1 else hung]
