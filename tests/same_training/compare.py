"""Compare two records: the first difference in words, or None; and how close floats must be."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from tests.same_training.case import BATCH_NORM, Case
from tests.same_training.record import Record

Skip = Callable[[str], bool]


@dataclass(frozen=True)
class Tolerance:
    """How far a float may be off, relative to the largest of its tensor and absolute. Zero: bit-equal."""

    relative: float = 0.0
    absolute: float = 0.0


SOME_STEPS = ("gradients or state are", "some parameters have no momentum")
"""A knob that is refused from some step on is in force in those before."""
EXACT = Tolerance()
REORDERED = Tolerance(1e-4, 1e-5)
"""fp32 sums in another order: some thousand times 2**-24, and a hundred times below the faults that are known."""
UNSTABLE = Tolerance(1e-2, 1e-3)
"""The same where noise is blown up: LBFGS divides by small differences, BatchNorm by the spread of two samples."""
LOW = Tolerance(0.1, 0.02)
"""Sums in another order whose terms have eight bits (bf16), over some ten optimizer steps."""


def tolerance(case: Case, in_force: Iterable[str]) -> Tolerance:
    """What ``case`` may differ by, given the knobs ``in_force`` that reorder sums; the reference has its precision."""
    knobs = set(in_force)
    reorders = case.processes > 1 or knobs & {"threads", "channels_last", "optimizer_impl", "compile"}
    if not reorders:
        return EXACT
    if knobs & {"precision", "matmul_precision"}:
        return LOW
    steep = case.optimizer == "lbfgs" or (case.model in BATCH_NORM and case.processes > 1)
    return UNSTABLE if steep else REORDERED


def in_force(case: Case, record: Record) -> set[str]:
    """The knobs that are not at their neutral value and were not refused."""
    refused = {knob for knob, reason in record.not_applied if not reason.startswith(SOME_STEPS)}
    asked = {
        "threads": case.threads != 1,
        "channels_last": case.channels_last,
        "optimizer_impl": case.optimizer_impl != "default",
        "compile": case.compile != "off",
        "precision": case.precision in ("bf16", "fp16"),
        "matmul_precision": case.matmul_precision == "medium" and case.precision == "fp32",
    }
    return {knob for knob, wanted in asked.items() if wanted} - refused


def difference(plain: Record, tested: Record, close: Tolerance, skip: Skip = lambda _name: False) -> str | None:
    """The first difference between two records, in words. Values that ``skip`` names are left out."""
    return (
        _orders(plain, tested)
        or _facts(plain.facts, tested.facts)
        or _names(plain.values, tested.values)
        or _values(plain.values, tested.values, close, skip)
    )


def _orders(plain: Record, tested: Record) -> str | None:
    for name, wanted in plain.orders.items():
        found = tested.orders[name]
        for step, (ours, theirs) in enumerate(zip(wanted, found, strict=False)):
            if ours != theirs:
                return f"data order of {name}, batch {step}: plain {ours}, runtime {theirs}"
        if len(wanted) != len(found):
            return f"batches of {name}: plain {len(wanted)}, runtime {len(found)}"
    return None


def _facts(plain: dict[str, Any], tested: dict[str, Any]) -> str | None:
    for name in [*plain, *(key for key in tested if key not in plain)]:
        ours, theirs = plain.get(name, "(missing)"), tested.get(name, "(missing)")
        if ours != theirs:
            return f"{name}: plain {ours!r}, runtime {theirs!r}"
    return None


def _names(plain: dict[str, Any], tested: dict[str, Any]) -> str | None:
    if list(plain) == list(tested):
        return None
    odd = sorted(set(plain) ^ set(tested))
    return f"figures in one record only: {odd[:3]}" if odd else "figures in another sequence"


def _values(plain: dict[str, Any], tested: dict[str, Any], close: Tolerance, skip: Skip) -> str | None:
    for name, ours in plain.items():
        if skip(name):
            continue
        wanted, found = torch.as_tensor(ours), torch.as_tensor(tested[name])
        if not same(wanted, found, close):
            off = (wanted.double() - found.double()).abs().max()
            largest = wanted.double().abs().max()
            return f"{name}: off by {off:.2g} of {largest:.2g} ({close.relative:g} relative is allowed)"
    return None


def same(wanted: torch.Tensor, found: torch.Tensor, close: Tolerance) -> bool:
    """Whether ``found`` is as close to ``wanted`` as asked; NaN equals NaN."""
    if wanted.numel() == 0 or torch.equal(wanted, found):
        return True
    allowed = close.absolute + close.relative * float(wanted.double().nan_to_num().abs().max())
    return torch.allclose(wanted.double(), found.double(), rtol=0, atol=allowed, equal_nan=True) and allowed > 0
