"""Judge one case: the records of all ranks against that of plain PyTorch."""

import contextlib
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from tests.same_training import compare, training
from tests.same_training.case import BATCH, BATCH_NORM, Case
from tests.same_training.record import Record
from tests.same_training.shared import SharedSide, shares
from tests.same_training.sides import PlainSide, RuntimeSide, profile_batch
from tests.same_training.training import PHASES

EQUAL, REFUSED, DIFFERENT = "equal", "refused by the tuner", "DIFFERENT"
KEPT_BATCH = ("your batch of", "batch_size:")
"""How a note begins that says that the user's batch was not replaced."""


@dataclass(frozen=True)
class Outcome:
    """What became of a case. ``reasons``: why it or a knob was refused, or what is different. ``hung``: a rank did."""

    case: Case
    verdict: str
    reasons: tuple[str, ...] = ()
    seconds: float = 0.0
    hung: bool = False


class Line(NamedTuple):
    """One case on one rank. ``plain`` is None on the ranks that leave it to another."""

    number: int
    tested: Record | str
    plain: Record | str | None
    seconds: float


def attempt(case: Case, side: Callable[[Case], PlainSide] = RuntimeSide) -> Record | str:
    """The tested side's record, or the traceback of what it raised."""
    return _caught(lambda: training.run(case, lambda: side(case), PlainSide))


def reference(case: Case, tested: Record, side: Callable[[str], PlainSide] | None = None) -> Record | str:
    """The record of plain PyTorch with the precision and batch that the runtime says are in force."""
    knobs = compare.in_force(case, tested)
    precision = case.precision if "precision" in knobs else "fp32"
    replaced = case.level == "max" and not any(said.startswith(KEPT_BATCH) for said in _said(tested))
    batch = profile_batch(case) if replaced and case.profile else BATCH
    peeks = case.processes == 1  # several processes repeat a pass that no step has followed: see `runtime.relay`
    make = side or (lambda precision: PlainSide(precision, peeks=peeks))
    with _products(case.matmul_precision if "matmul_precision" in knobs else "highest"):
        return _caught(lambda: training.run(case, lambda: make(precision), PlainSide, batch))


@contextlib.contextmanager
def _products(precision: str) -> Iterator[None]:
    """Products of float32 matrices in ``precision`` while inside."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def shared_reference(case: Case, ranks: list[Record]) -> Record | str:
    """`reference`, with BatchNorm over the parts of each batch that the ranks say they saw."""
    return reference(case, ranks[0], lambda precision: SharedSide(precision, shares(case, ranks)))


def _said(record: Record) -> list[str]:
    """Notes, and knobs that are not applied with the reason."""
    refused = [f"{knob}: {reason}" for knob, reason in record.not_applied]
    return [*(note for note in record.notes if " not applied: " not in note), *refused]


def _caught(run: Callable[[], Record]) -> Record | str:
    try:
        return run()
    except Exception as error:  # whatever it is, it is what this side made of the case
        frames = traceback.extract_tb(error.__traceback__)
        places = " < ".join(f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}" for frame in reversed(frames[-3:]))
        return f"{type(error).__name__}: {' '.join(str(error).split())[:300]} ({places})"


def judge(case: Case, ranks: list[Record | str], plain: Record | str) -> Outcome:
    """Compare every rank's record with that of plain PyTorch."""
    raised = [f"rank {number} raised {record}" for number, record in enumerate(ranks) if isinstance(record, str)]
    if raised:
        return Outcome(case, DIFFERENT, ("; ".join(raised),))
    records = [record for record in ranks if isinstance(record, Record)]
    if isinstance(plain, str):
        return Outcome(case, DIFFERENT, (f"plain PyTorch raised {plain}",))
    found = _difference(case, records, plain)
    if found is not None:
        return Outcome(case, DIFFERENT, (found,))
    return Outcome(case, EQUAL, tuple(_said(records[0])))


def _difference(case: Case, ranks: list[Record], plain: Record) -> str | None:
    first = ranks[0]
    close = compare.tolerance(case, compare.in_force(case, first))
    if _kept_in_silence(case, ranks):
        return f"level max kept the user's batch of {BATCH}, and no note says so"
    if len(ranks) == 1:
        return compare.difference(plain, first, close)
    if case.model in BATCH_NORM and not any("BatchNorm" in note for note in first.notes):
        return "no note says that BatchNorm normalises over each process's share"
    together = replace(first, orders=_together(ranks))
    return _ranks_apart(case, ranks) or compare.difference(_as_sets(plain), together, close, skip=of_a_share)


def _kept_in_silence(case: Case, ranks: list[Record]) -> bool:
    """True where the profile's batch should have replaced the user's, and did not."""
    expected = case.level == "max" and case.profile and profile_batch(case) != BATCH
    if not expected or any(note.startswith(KEPT_BATCH) for note in _said(ranks[0])):
        return False
    trained = replace(ranks[0], orders=_together(ranks)).half("train", PHASES[case.checkpoint].index("tested"))
    return max(map(len, trained), default=0) <= BATCH


def _as_sets(record: Record) -> Record:
    """``record`` with each batch as a sorted set: ranks see parts of it, and of a small one the same part."""
    return replace(record, orders={name: [sorted(set(ids)) for ids in steps] for name, steps in record.orders.items()})


def _together(ranks: list[Record]) -> dict[str, list[list[int]]]:
    """The samples of each step over all ranks."""
    orders: dict[str, list[list[int]]] = {}
    for name in ranks[0].orders:
        steps = zip(*(record.orders[name] for record in ranks), strict=False)
        orders[name] = [sorted({number for ids in step for number in ids}) for step in steps]
    return orders | {"eval": [sorted(set(ids)) for ids in ranks[0].orders["eval"]]}  # each rank reads all of it


def of_a_share(name: str) -> bool:
    """True for figures that a rank can only have of its own part of a batch."""
    return name.startswith("losses") or name.endswith("prev_loss")


def _ranks_apart(case: Case, ranks: list[Record]) -> str | None:
    """The first trained value in which a rank differs from rank 0."""
    trained = {name: value for name, value in ranks[0].values.items() if name.startswith("file.networks")}
    for number, record in enumerate(ranks[1:], start=1):
        if any(len(record.orders[name]) != len(steps) for name, steps in ranks[0].orders.items()):
            return f"rank {number} took another number of steps than rank 0"
        for name, value in trained.items():
            if name not in record.values or not compare.same(value, record.values[name], compare.EXACT):
                return f"{name} on rank {number} is not what it is on rank 0"
    return None
