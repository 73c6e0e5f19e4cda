"""The harness itself: sides that are known to be wrong must be found different, and plain PyTorch equal to itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from tests.same_training import covering, outcome, ranks, table
from tests.same_training.case import AXES, WORLDS, Case, parsed
from tests.same_training.legal import legal, refused_by_tuner
from tests.same_training.mends import MENDS, taken_back
from tests.same_training.outcome import DIFFERENT, EQUAL, Outcome
from tests.same_training.record import Record
from tests.same_training.sides import PlainSide


@pytest.fixture(autouse=True)
def _own_process_state() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng():
        yield
    torch.set_num_threads(before)


class Plain(PlainSide):
    """The side under test is plain PyTorch too."""

    def __init__(self, _case: Case) -> None:
        super().__init__()
        self.calls = 0


class DropsAStep(Plain):
    """One backward pass is lost."""

    def backward(self, loss: Tensor) -> None:
        self.calls += 1
        if self.calls != 3:
            super().backward(loss)


class ScalesGradients(Plain):
    """Gradients are 1 % too large."""

    def backward(self, loss: Tensor) -> None:
        super().backward(loss * 1.01)


class ClipsAtTwice(Plain):
    """Another norm than asked."""

    def clip(self, parameters: list[Tensor], most: float) -> None:
        super().clip(parameters, 2 * most)


class DrawsARandomNumber(Plain):
    """Moves the user's random numbers on, and with it every later shuffle."""

    def prepare(self, *objects: Any) -> list[Any]:
        torch.rand(1)
        return super().prepare(*objects)


class KeepsItsFlag(Plain):
    """Leaves its own choice of implementation in the user's checkpoint."""

    def prepare(self, *objects: Any) -> list[Any]:
        for optimizer in objects:
            if isinstance(optimizer, Optimizer):
                optimizer.param_groups[0]["foreach"] = True
        return super().prepare(*objects)


@dataclass
class Changed:
    """A loader whose batches are changed as a list."""

    loader: DataLoader[Any]
    change: Callable[[list[Any]], list[Any]]
    dataset: Any = None

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.change(list(self.loader)))


class ChangesBatches(Plain):
    """The data come differently."""

    def prepare(self, *objects: Any) -> list[Any]:
        return [Changed(item, self.change) if isinstance(item, DataLoader) else item for item in objects]

    def change(self, batches: list[Any]) -> list[Any]:
        """Another list of batches."""
        raise NotImplementedError


class TurnsTheOrder(ChangesBatches):
    """The same batches in another order."""

    def change(self, batches: list[Any]) -> list[Any]:
        return batches[::-1]


class DropsTheTail(ChangesBatches):
    """The last, smaller batch is lost."""

    def change(self, batches: list[Any]) -> list[Any]:
        return batches[:-1]


class MakesLists(ChangesBatches):
    """Batches lose their class."""

    def change(self, batches: list[Any]) -> list[Any]:
        return [list(batch) for batch in batches]


class ChangesTheSchedule(Plain):
    """Learning rates fall faster."""

    def prepare(self, *objects: Any) -> list[Any]:
        for item in objects:
            if isinstance(item, LRScheduler):
                item.gamma *= 0.99
        return super().prepare(*objects)


class Crashes(Plain):
    """Raises where plain PyTorch works."""

    def backward(self, loss: Tensor) -> None:
        raise RuntimeError("no such thing")


def judged(case: Case, side: Callable[[Case], PlainSide]) -> Outcome:
    """What the harness says of ``side``."""
    tested = outcome.attempt(case, side)
    plain = outcome.reference(case, tested) if isinstance(tested, Record) else tested
    return outcome.judge(case, [tested], plain)


@pytest.mark.parametrize(
    ("side", "case", "words"),
    [
        (DropsAStep, Case(), "losses"),
        (ScalesGradients, Case(), "losses"),
        (ScalesGradients, Case(optimizer_impl="foreach"), "off by"),
        (ClipsAtTwice, Case(loop="clip"), "losses"),
        (DrawsARandomNumber, Case(), "data order of train, batch 0"),
        (KeepsItsFlag, Case(optimizer="adam"), "param_groups.0.foreach: plain None, runtime True"),
        (TurnsTheOrder, Case(loader="sequential", tail=2), "data order of train, batch 0"),
        (DropsTheTail, Case(loader="sequential", tail=2), "data order of train, batch 3"),
        (DropsTheTail, Case(loader="sequential", loop="evaluate"), "data order of"),
        (MakesLists, Case(batches="namedtuple"), "class of a train batch: plain 'Named', runtime 'list'"),
        (ChangesTheSchedule, Case(schedule="per_epoch"), "learning rates"),
        (Crashes, Case(), "rank 0 raised RuntimeError: no such thing"),
    ],
)
def test_a_wrong_side_is_found(side: Callable[[Case], PlainSide], case: Case, words: str) -> None:
    found = judged(case, side)
    assert found.verdict == DIFFERENT
    assert words in found.reasons[0]


@pytest.mark.parametrize("axis", ["model", "optimizer", "loop", "schedule", "checkpoint", "loader", "batches", "loss"])
def test_plain_pytorch_is_equal_to_itself(axis: str) -> None:
    for value in AXES[axis]:
        case = legal(Case(**{"model": "lstm" if value == "packed" else "conv2d"} | {axis: value}))
        assert judged(case, Plain).verdict == EQUAL, case


def trained(case: Case) -> Record:
    """The record of plain PyTorch."""
    record = outcome.attempt(case, Plain)
    assert isinstance(record, Record)
    return record


@pytest.mark.parametrize("apart", ["weights", "steps"])
def test_ranks_that_come_apart_are_found(apart: str) -> None:
    case = Case(world="gloo2")
    first, second, plain = (trained(case) for _ in range(3))
    assert outcome.judge(case, [first, second], plain).verdict == EQUAL
    if apart == "weights":
        second.values["file.networks.main.0.weight"][0, 0] += 1e-6
    else:
        second.orders["train"].pop()
    found = outcome.judge(case, [first, second], plain)
    assert found.verdict == DIFFERENT
    assert "rank 1" in found.reasons[0]


def test_batch_norm_over_shares_needs_a_note() -> None:
    case = Case(world="gloo2", model="batchnorm")
    first, plain = trained(case), trained(case)
    assert "no note" in outcome.judge(case, [first, first], plain).reasons[0]
    noted = replace(first, notes=("BatchNorm normalises over 3 samples",))
    assert outcome.judge(case, [noted, noted], plain).verdict == EQUAL


def test_batch_norm_over_shares_is_another_training() -> None:
    case = Case(model="batchnorm", loader="sequential")
    whole = trained(case)
    halves = [replace(whole, orders={k: [ids[i::2] for ids in v] for k, v in whole.orders.items()}) for i in (0, 1)]
    parts = outcome.shared_reference(case, halves)
    assert "losses" in (outcome.judge(case, [whole], parts).reasons[0])
    assert outcome.judge(case, [whole], outcome.shared_reference(case, [whole])).verdict == EQUAL


def test_a_case_that_no_rank_finished_is_different() -> None:
    found = ranks._judged(Case(world="gloo2"), [], "rank 0 ended with 1: Timeout!")
    assert found.verdict == DIFFERENT
    assert "Timeout!" in found.reasons[0]


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


@pytest.mark.parametrize("name", [name for name, mend in MENDS.items() if mend.case.processes == 1])
def test_every_mend_is_missed(name: str) -> None:
    assert outcome.run(MENDS[name].case).verdict == EQUAL
    with taken_back(name):
        assert outcome.run(MENDS[name].case).verdict == DIFFERENT
