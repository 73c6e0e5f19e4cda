"""`Profile`: what a tuning run found, as data. Reading and writing files is `autotune.store`.

Schema history
    autotune.profile/1   first public format
    autotune.profile/2   adds `written` and `target.identity`, memory and links of GPUs, and the GPU driver
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.core.errors import UsageError
from autotune.core.identity import Identity, Made
from autotune.core.near import did_you_mean
from autotune.core.proof import Proof
from autotune.core.settings import Settings

SCHEMA = "autotune.profile/2"
READABLE = ("autotune.profile/1", SCHEMA)
"""Versions that are read; `SCHEMA` is written."""


@dataclass(frozen=True)
class LevelResult:
    """One level's answer. Where ``proven`` is False, ``settings`` are those of the level below (or the baseline)."""

    settings: Settings
    rate: float
    """Items per second in the proof."""
    speedup: Proof
    """Against the baseline."""
    proven: bool
    note: str = ""
    """Why, in plain words, where the level adds nothing of its own."""


@dataclass(frozen=True)
class Failure:
    """One setting that did not work."""

    kind: str
    reason: str
    changed: Mapping[str, Any]
    """The knobs by which it differs from the baseline."""


@dataclass(frozen=True)
class NotOffered:
    """One value that was never tried."""

    knob: str
    value: Any
    reason: str


@dataclass(frozen=True)
class Ceiling:
    """What the hardware can do at most, measured, and what the task asks of it."""

    fp32_gflops: float
    """Rate of large matrix products on the whole budget, in 1e9 floating-point operations per second."""
    bf16_gflops: float
    flops_per_item: float

    def share(self, rate: float, precision: str) -> float:
        """Share of the matrix rate that ``rate`` items per second use."""
        most = self.bf16_gflops if precision == "bf16" else self.fp32_gflops
        return rate * self.flops_per_item / (most * 1e9) if most > 0 else 0.0


@dataclass(frozen=True)
class Evidence:
    """How the answer was found."""

    trials: int
    seconds: float
    failures: tuple[Failure, ...] = ()
    not_offered: tuple[NotOffered, ...] = ()
    warnings: tuple[str, ...] = ()
    partial: bool = False
    """True where tuning was interrupted before the proof."""
    ceiling: Ceiling | None = None
    why: str = ""
    """What bounds the baseline's step (`autotune.inspect.verdict.Bound`); empty if that was not measured."""


@dataclass(frozen=True)
class Target:
    """What was tuned: the task's name, the unit of its rates, and its device."""

    name: str
    unit: str
    device: str
    parameters: int
    samples: int | None
    nnodes: int = 1
    """How many machines trained it together; settings are those of each, with the global batch of all."""
    script: str | None = None
    """What a training step of an unmodified script is known by; None for a task file."""
    skip: int = 0
    """How many loaders a script iterates before its training loader."""
    identity: Identity | None = None
    """What was trained; None in files of version 1."""


@dataclass(frozen=True)
class Written:
    """Who made a profile, and when."""

    tool: str
    """Version of torch-autotune."""
    date: str
    """Day in UTC, such as ``2026-11-22``."""


@dataclass(frozen=True)
class Profile:
    """The file's content."""

    machine: Mapping[str, Any]
    """``{key, facts}`` of the `MachineType`."""
    software: Mapping[str, Any]
    """``{python, torch, cuda, ...}``: what the figures depend on."""
    target: Target
    recommended: str
    baseline: Settings
    baseline_rate: float
    levels: Mapping[str, LevelResult]
    evidence: Evidence
    written: Written | None = None
    """None in files of version 1."""
    schema: str = SCHEMA

    @property
    def key(self) -> str:
        """The machine key."""
        return str(self.machine["key"])

    @property
    def made(self) -> Made:
        """What the profile was made for."""
        return Made(self.target.name, self.target.parameters, self.target.identity)

    def level(self, name: str | None = None) -> LevelResult:
        """The result of level ``name``; the recommended one by default."""
        return self.levels[name or self.recommended]

    def checked_level(self, wanted: str | None, option: str = "--level") -> str:
        """``wanted``, which the user said with ``option``; the recommended level if None.

        Raises:
            UsageError: there is no such level.
        """
        name = wanted or self.recommended
        if name not in self.levels:
            hint = did_you_mean(name, self.levels)
            raise UsageError(f"{option} {name}: the profile has {', '.join(self.levels)}{hint}")
        return name

    def as_dict(self) -> dict[str, Any]:
        """Plain data in the order of the file."""
        return {
            "schema": self.schema,
            **({"written": dict(vars(self.written))} if self.written else {}),
            "machine": dict(self.machine),
            "software": dict(self.software),
            "target": _target_dict(self.target),
            "recommended": self.recommended,
            "baseline": {"settings": self.baseline.as_dict(), "rate": self.baseline_rate},
            "levels": {name: _level_dict(result) for name, result in self.levels.items()},
            "evidence": {
                "trials": self.evidence.trials,
                "seconds": self.evidence.seconds,
                "partial": self.evidence.partial,
                "failures": [
                    {"kind": f.kind, "reason": f.reason, "changed": dict(f.changed)} for f in self.evidence.failures
                ],
                "not_offered": [dict(vars(item)) for item in self.evidence.not_offered],
                "warnings": list(self.evidence.warnings),
                "ceiling": dict(vars(self.evidence.ceiling)) if self.evidence.ceiling else None,
                "why": self.evidence.why,
            },
        }


def _target_dict(target: Target) -> dict[str, Any]:
    """What is usual goes without saying: files of earlier versions know nothing else."""
    usual = {"nnodes": 1, "script": None, "skip": 0, "identity": None}
    data = {name: value for name, value in vars(target).items() if name not in usual or value != usual[name]}
    return data | ({"identity": target.identity.as_dict()} if target.identity else {})


def _level_dict(result: LevelResult) -> dict[str, Any]:
    return {
        "settings": result.settings.as_dict(),
        "rate": result.rate,
        "speedup": result.speedup.as_dict(),
        "proven": result.proven,
        "note": result.note,
    }
