"""Outcomes as plain data for the study's user attributes, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from autotune.stats.measurement import Measurement
from autotune.stats.outcome import (
    Completed,
    Crashed,
    NotApplied,
    Outcome,
    OutOfMemory,
    Skipped,
    TimedOut,
    WrongNumbers,
)

KINDS: dict[str, type[Outcome]] = {
    kind.kind: kind for kind in (Completed, OutOfMemory, TimedOut, Crashed, WrongNumbers, NotApplied, Skipped)
}
DETAIL_CHARACTERS = 2000
"""Characters of a log's tail kept in the study."""


def outcome_to_dict(outcome: Outcome) -> dict[str, Any]:
    """``{kind, reason, ...}``, ready for JSON. Long details keep their end."""
    return {"kind": outcome.kind, **asdict(outcome), "detail": outcome.detail[-DETAIL_CHARACTERS:]}


def outcome_from_dict(data: Mapping[str, Any]) -> Outcome:
    """The inverse of `outcome_to_dict`; keys it does not know are ignored."""
    kind = KINDS[data["kind"]]
    values = {field.name: data[field.name] for field in fields(kind) if field.name in data}
    if values.get("measurement") is not None:
        values["measurement"] = Measurement.from_dict(values["measurement"])
    for name in ("losses", "notes"):
        if name in values:
            values[name] = tuple(values[name])
    return kind(**values)
